"""What a job's plan would take, for models that only this predictor knows."""

from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import (
    Card,
    CaseModel,
    CaseParallelism,
    CaseTraining,
    Run,
)
from frenzy_marp.core.cases.estimate import CaseEstimate, Range, estimate_run
from frenzy_marp.core.cases.learned import shipped
from frenzy_marp.core.cases.prediction import Moment, predict_moments
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Band,
    Loss,
    MemoryEstimate,
    MemoryTerm,
    ParallelismPlan,
    Precision,
)
from frenzy_shared.units import GIB

_SHARDINGS: Final = {
    0: word.Sharding.DDP,
    1: word.Sharding.ZERO1,
    2: word.Sharding.ZERO2,
    3: word.Sharding.ZERO3,
}


def run_of(
    model: CaseModel,
    plan: ParallelismPlan,
    *,
    length: int,
    attention: Attention,
    gpu: GpuModel | None,
    capacity_bytes: int | None,
) -> Run:
    """Return the run of a plan: all parameters trained by DeepSpeed, sequences packed."""
    dtype = word.Dtype(str(plan.precision))
    mixed = plan.precision is not Precision.FP32
    tokens = plan.micro_batch_size * length
    training = CaseTraining(
        framework=word.Framework.DEEPSPEED,
        sequence_length=length,
        micro_batch_size=plan.micro_batch_size,
        accumulation=plan.gradient_accumulation_steps,
        tokens_low=tokens,
        tokens_high=tokens,
        method=word.Method.FULL,
        adapter=None,
        quantization=None,
        param_dtype=dtype,
        compute_dtype=dtype,
        autocast=False,
        master_weights=mixed,
        grad_dtype=dtype,
        optimizer=word.Optimizer.ADAMW,
        state_dtype=word.StateDtype.FP32,
        optimizer_impl=word.OptimizerImplementation.FOREACH,
        checkpointing=word.Checkpointing.FULL
        if plan.activation_checkpointing is ActivationCheckpointing.FULL
        else word.Checkpointing.NONE,
        checkpointing_detail="",
        attention=word.AttentionKernel(str(attention)),
        loss=word.LossKernel.CHUNKED if plan.loss is Loss.CHUNKED else word.LossKernel.EAGER,
        logits_dtype=word.Dtype.FP32,
        compiled=False,
        dropout=0.0,
        offload=word.Offload.NONE,
        packing=word.Packing.PACKED,
        torch_version="2.13",
        expandable_segments=True,
        recipe=None,
        kbit_upcast=False,
        adapter_dtype=None,
        loss_compiled=False,
        logits_kept=False,
        load_time_peak=False,
        head=word.Head.LM,
        optimizer_in_backward=False,
    )
    return Run(
        model=model,
        training=training,
        parallelism=_data_parallel(plan, dtype),
        card=Card(
            name="unknown" if gpu is None else gpu.name,
            count=plan.data,
            capacity_gib=None if capacity_bytes is None else capacity_bytes / GIB,
        ),
        rank=word.RankOf.MAX,
    )


def answer(run: Run) -> tuple[MemoryEstimate, tuple[Moment, ...], CaseEstimate]:
    """Return what a run takes in bytes, its moments, and the estimate with its verdict."""
    found, moments = estimate_run(run, shipped(shifted=False)), predict_moments(run)
    terms = tuple(
        MemoryTerm(name=name, size_bytes=round(size * GIB)) for name, size in found.terms_gib
    )
    allocated = _band(found.allocated)
    expected = sum(term.size_bytes for term in terms)
    memory = MemoryEstimate(
        allocated=Band(low=allocated.low, expected=expected, high=allocated.high),
        reserved=_band(found.reserved),
        device=_band(found.device),
        required=_band(found.required),
        moment=found.moment,
        terms=terms,
        mode="analytical",
    )
    return memory, moments, found


def _data_parallel(plan: ParallelismPlan, dtype: word.Dtype) -> CaseParallelism:
    sharded = plan.zero_stage > 0 and plan.data > 1
    return CaseParallelism(
        data=plan.data,
        tensor=1,
        pipeline=1,
        context=1,
        expert=1,
        sequence_parallel=False,
        virtual_pipeline=1,
        stage_layers=(),
        sharding=_SHARDINGS[plan.zero_stage] if plan.data > 1 else word.Sharding.NONE,
        shard_degree=plan.data if sharded else 1,
        bucket_elements=plan.reduce_bucket_elements or None,
        overlap_comm=False,
        reshard_after_forward=True,
        reduce_dtype=dtype if plan.data > 1 else None,
        expert_tensor=1,
    )


def _band(value: Range) -> Band:
    low, expected, high = (round(size * GIB) for size in (value.low, value.expected, value.high))
    return Band(low=low, expected=expected, high=high)
