"""Which kernels a set-up runs: what is fused decides what backward keeps."""

from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import CaseTraining, Run

_HUGGING_FACE = frozenset(
    {
        word.Framework.HF_TRAINER,
        word.Framework.DEEPSPEED,
        word.Framework.SWIFT,
        word.Framework.COLOSSALAI,
        word.Framework.OTHER,
        word.Framework.LIGHTNING,
    }
)
_MEGATRON = frozenset({word.Framework.MEGATRON, word.Framework.MEGATRON_DEEPSPEED})
# Projections made by one matrix whose parts are views: the parts keep the whole alive.
_FUSED_QKV = frozenset(
    {
        word.Family.GPT2,
        word.Family.GPT_NEOX,
        word.Family.BLOOM,
        word.Family.QWEN,
        word.Family.FALCON,
        word.Family.GPT_BIGCODE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What the framework fuses, and the width of what flows between blocks."""

    hugging_face: bool
    megatron: bool
    fused_norm: bool
    fused_gate: bool
    fused_qkv: bool
    whole_qkv: bool  # the projection's output outlives the rotary embedding
    packed_attention: bool  # nanotron packs rotated copies for flash attention
    compiled: bool
    thunder: bool
    stream_bytes: int
    recompute_bytes: int  # elements of a recomputed block


def kernels(run: Run) -> Kernels:
    """Derive the kernels from framework, loss kernel and compilation.

    In Hugging Face set-ups a fused loss comes from kernel packages (Liger, fms-acceleration) that
    replace RMSNorm and rotary embedding too.
    """
    training = run.training
    hugging_face = training.framework in _HUGGING_FACE
    megatron = training.framework in _MEGATRON
    litgpt = training.framework in {word.Framework.LITGPT, word.Framework.THUNDER}
    fused_loss = training.loss in {word.LossKernel.FUSED, word.LossKernel.LINEAR_FUSED}
    nanotron = training.framework is word.Framework.NANOTRON
    compiled = training.compiled or training.framework is word.Framework.THUNDER
    fused = compiled or megatron or nanotron or (hugging_face and fused_loss)
    return Kernels(
        hugging_face=hugging_face,
        megatron=megatron,
        fused_norm=fused or run.model.norm is word.Norm.LAYER,
        fused_gate=compiled or megatron,
        fused_qkv=litgpt or run.model.family in _FUSED_QKV,
        whole_qkv=litgpt,
        packed_attention=nanotron,
        compiled=compiled,
        thunder=training.framework is word.Framework.THUNDER,
        stream_bytes=_stream_bytes(training, hugging_face=hugging_face),
        recompute_bytes=_recompute_bytes(run),
    )


def _stream_bytes(training: CaseTraining, *, hugging_face: bool) -> int:
    """Return the bytes of an element of the residual stream.

    fp32 where norms or embeddings are fp32: autocast over fp32 weights, or k-bit preparation.
    """
    if training.kbit_upcast:
        return 4
    full_fp32 = training.param_dtype is word.Dtype.FP32 and training.autocast and hugging_face
    return 4 if full_fp32 else training.compute_dtype.size_bytes


def _recompute_bytes(run: Run) -> int:
    """Return the bytes of an element inside a recomputed block.

    FSDP1 computes in its own mixed precision, in 16 bit; with fp32 adapters the wrapped block is
    recomputed outside autocast, so that everything after the first adapter is fp32.
    """
    training = run.training
    if (
        run.parallelism.sharding is word.Sharding.FSDP
        and training.adapter_dtype is word.Dtype.FP32
        and training.method is not word.Method.FULL
    ):
        return 4
    return training.compute_dtype.size_bytes
