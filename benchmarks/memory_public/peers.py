"""Other estimators on the same rows, each on those that it can express, run in this process.

They are what PyPI has: install them beside Frenzy (README.md); one that is missing is reported as
such. Nothing of theirs is copied: each adapter turns a run into the arguments of a public function.
"""

import io
import logging
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from statistics import fmean, median
from types import ModuleType
from typing import Any

from benchmarks.memory_public.evaluation import size_class

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case, Run
from frenzy_marp.core.cases.modes import Mode, predict
from frenzy_marp.core.cases.overhead import GIB
from frenzy_marp.core.cases.scoring import target

_ADAM = {word.Optimizer.ADAMW, word.Optimizer.PAGED_ADAMW}
_WHOLE = {word.Sharding.NONE, word.Sharding.DDP}
_STAGE_3 = {word.Sharding.ZERO3, word.Sharding.FSDP, word.Sharding.FSDP2}
_STAGES = {
    word.Sharding.ZERO1: "STAGE_1",
    word.Sharding.DIST_OPTIMIZER: "STAGE_1",
    word.Sharding.ZERO2: "STAGE_2",
    **dict.fromkeys(_STAGE_3, "STAGE_3"),
}


@dataclass(frozen=True, slots=True)
class Peer:
    """One estimator: its package and module, and what makes a run's bytes of it (None: cannot)."""

    name: str
    package: str
    module: str
    bytes_of: Callable[[ModuleType, Run], float | None]


def score_peers(cases: Sequence[Case], peers: Sequence[Peer] | None = None) -> dict[str, Any]:
    """Return accuracy by peer and metric, with MARP's analytical mode on the very same rows."""
    logging.disable(logging.WARNING)  # llm-analysis tells every step
    try:
        found = {peer.name: _score(peer, cases) for peer in (_PEERS if peers is None else peers)}
    finally:
        logging.disable(logging.NOTSET)
    return found


def _score(peer: Peer, cases: Sequence[Case]) -> dict[str, Any]:
    try:
        module, release = import_module(peer.module), version(peer.package)
    except (ImportError, PackageNotFoundError):
        return {"unavailable": f"not installed: pip install {peer.package}"}
    cells: dict[str, list[tuple[str, float, float]]] = {}
    expressed = 0
    for case in cases:
        with redirect_stdout(io.StringIO()):
            size = peer.bytes_of(module, case.run)
        if size is None:
            continue
        expressed += bool(case.readings)
        own = predict(case.run, Mode.ANALYTICAL)
        for metric, measured in case.readings:
            theirs = size / GIB / measured
            ours = own.of(target(case, metric)).expected / measured
            by = size_class(case.run.model.num_parameters)
            for name in (metric.value, f"{metric.value}, {by}"):
                cells.setdefault(name, []).append((case.label.group, theirs, ours))
    metrics = {name: _cell(rows) for name, rows in sorted(cells.items()) if "," not in name}
    sizes = {name: _cell(rows) for name, rows in sorted(cells.items()) if "," in name}
    return {
        "version": release,
        "rows_expressed": expressed,
        "rows": sum(bool(case.readings) for case in cases),
        "metrics": metrics,
        "metrics_by_size": sizes,
    }


def _cell(rows: Sequence[tuple[str, float, float]]) -> dict[str, Any]:
    return {
        "n": len(rows),
        "mean": round(fmean(_accuracy(theirs) for _, theirs, _ in rows), 4),
        "median_ratio": round(median(theirs for _, theirs, _ in rows), 4),
        "within_10pct": round(fmean(abs(theirs - 1) <= 0.1 for _, theirs, _ in rows), 4),
        "marp_mean": round(fmean(_accuracy(ours) for _, _, ours in rows), 4),
        "marp_within_10pct": round(fmean(abs(ours - 1) <= 0.1 for _, _, ours in rows), 4),
    }


def _accuracy(ratio: float) -> float:
    return max(0.0, 1 - abs(ratio - 1))


def _plain(run: Run) -> bool:
    """Return whether a run trains all parameters with Adam on data-parallel ranks alone."""
    parallel, training = run.parallelism, run.training
    split = parallel.tensor * parallel.pipeline * parallel.context * parallel.expert
    kept = training.offload in {word.Offload.NONE, word.Offload.ACTIVATIONS}
    full = training.method is word.Method.FULL and training.optimizer in _ADAM
    return full and kept and split == 1


def _zero2(module: ModuleType, run: Run) -> float | None:
    if not _plain(run) or run.parallelism.sharding is not word.Sharding.ZERO2:
        return None
    _, size = module.estimate_zero2_model_states_mem_needs(
        run.model.num_parameters,
        num_gpus_per_node=run.parallelism.shard_degree,
        cpu_offload=False,
    )
    return float(size)


def _zero3(module: ModuleType, run: Run) -> float | None:
    if not _plain(run) or run.parallelism.sharding not in _STAGE_3:
        return None
    _, size, _ = module.estimate_zero3_model_states_mem_needs(
        run.model.num_parameters,
        run.model.vocab_size * run.model.hidden_size,
        num_gpus_per_node=run.parallelism.shard_degree,
        cpu_offload=False,
        cpu_offload_params=False,
    )
    return float(size)


def _accelerate(module: ModuleType, run: Run) -> float | None:
    """Return its "step": it takes the bytes of the weights, and neither batch nor length."""
    if not _plain(run) or run.parallelism.sharding not in _WHOLE:
        return None
    mixed = {word.Dtype.BF16: "bfloat16", word.Dtype.FP16: "float16", word.Dtype.FP8: "fp8"}
    training = run.training
    single = training.param_dtype is word.Dtype.FP32 and training.compute_dtype is word.Dtype.FP32
    found = module.estimate_training_usage(
        4 * run.model.num_parameters,
        "float32" if single else mixed.get(training.compute_dtype, "bfloat16"),
    )
    return float(max(found.values()))


def _llm_analysis(module: ModuleType, run: Run) -> float | None:
    training, parallel = run.training, run.parallelism
    unknown = training.method is not word.Method.FULL or training.optimizer not in _ADAM
    unknown |= training.offload is not word.Offload.NONE or parallel.context > 1
    unknown |= run.model.latent is not None or training.param_dtype is word.Dtype.FP32
    unknown |= parallel.sharding is word.Sharding.FSDP_GRAD_OP
    if unknown:
        return None
    try:
        found = _llm_analysed(module, run).training(
            batch_size_per_gpu=training.micro_batch_size,
            gradient_accumulation_steps=training.accumulation,
            seq_len=training.sequence_length,
            activation_recomputation=_recomputation(module, training.checkpointing),
            ds_zero=module.DSZeRO[_STAGES.get(parallel.sharding, "NONE")],
            layernorm_dtype_bytes=training.param_dtype.size_bytes,
            master_weights_dtype_bytes=4 if training.master_weights else 0,
            other_op_bytes=8 if training.state_dtype is word.StateDtype.FP32 else 4,
            flash_attn=training.attention is not word.AttentionKernel.EAGER,
            mlp_gated_linear_units=run.model.gated_mlp,
        )
    except (AssertionError, ValueError, ZeroDivisionError):  # its own checks refuse the run
        return None
    return float(found["(weight+op_state+grad+act)_memory_per_gpu"])


def _llm_analysed(module: ModuleType, run: Run) -> Any:
    model, parallel = run.model, run.parallelism
    config = import_module("llm_analysis.config")
    return module.LLMAnalysis(
        config.ModelConfig(
            name="case",
            num_layers=model.num_layers,
            n_head=model.num_heads,
            hidden_dim=model.hidden_size,
            vocab_size=model.vocab_size,
            max_seq_len=run.training.sequence_length,
            num_key_value_heads=model.num_kv_heads,
            ffn_embed_dim=model.expert_intermediate_size or model.intermediate_size,
            expansion_ratio=model.intermediate_size / model.hidden_size,
            moe_num_experts=max(1, model.num_experts),
            moe_top_k=max(1, model.experts_per_token),
        ),
        config.GPUConfig("endless", 1e6, 2000, 600, 1e-6, 312),  # so that nothing is refused
        config.DtypeConfig(),
        config.ParallelismConfig(
            tp_size=parallel.tensor,
            pp_size=parallel.pipeline,
            dp_size=parallel.data,
            ep_size=parallel.expert,
            sp_size=parallel.tensor if parallel.sequence_parallel else 1,
        ),
        flops_efficiency=0.5,
    )


def _recomputation(module: ModuleType, kind: word.Checkpointing) -> Any:
    return module.ActivationRecomputation[kind.value.upper()]


_PEERS = (
    Peer("deepspeed zero2", "deepspeed", "deepspeed.runtime.zero.stage_1_and_2", _zero2),
    Peer("deepspeed zero3", "deepspeed", "deepspeed.runtime.zero.stage3", _zero3),
    Peer("accelerate", "accelerate", "accelerate.commands.estimate", _accelerate),
    Peer("llm-analysis", "llm-analysis", "llm_analysis.analysis", _llm_analysis),
)
