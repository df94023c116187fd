"""Which kernels a set-up runs: what is fused decides what backward keeps."""

from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run

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
    whole_qkv: bool  # litgpt: the projection's output outlives the rotary embedding
    packed_attention: bool  # nanotron packs rotated copies for flash attention
    compiled: bool
    thunder: bool
    stream_bytes: int


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
        stream_bytes=_stream_bytes(run, hugging_face=hugging_face),
    )


def torch_from(version: str, major: int, minor: int) -> bool:
    """Return whether a torch version is stated and at least ``major.minor``."""
    first, _, rest = version.partition(".")
    second = rest.partition(".")[0]
    stated = first.isdecimal() and second.isdecimal()
    return stated and (int(first), int(second)) >= (major, minor)


def _stream_bytes(run: Run, *, hugging_face: bool) -> int:
    """Return the bytes of an element of the residual stream.

    fp32 where norms or embeddings are fp32: autocast over fp32 weights, or k-bit preparation.
    FSDP casts fp32 shards to 16 bit before autocast sees them.
    """
    training = run.training
    if training.kbit_upcast:
        return 4
    whole = run.parallelism.sharding not in {word.Sharding.FSDP, word.Sharding.FSDP2}
    autocast = training.autocast and hugging_face and whole
    if training.param_dtype is word.Dtype.FP32 and autocast:
        return 4
    return training.compute_dtype.size_bytes
