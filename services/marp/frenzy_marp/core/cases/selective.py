"""Bytes that a selectively checkpointed block keeps, per token of one rank."""

import re
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.attention import scores_bytes
from frenzy_marp.core.cases.block import Block
from frenzy_marp.core.cases.feed_forward import activated_width

_EVERY_NTH: Final = re.compile(r"every (\d{1,6})\w{0,2} layer")
_RECOMPUTED: Final = re.compile(r"\[([\w ]*)\]")
_KEPT_OUTPUTS: Final = re.compile(r"outputs are kept: (.*)")
_NVFP4_SHARE: Final = 0.45  # inputs of matrix products are kept in 4 bit: measured


def selective_bytes(block: Block, everything: float) -> float:
    """Return what is kept of ``everything``, by what the set-up says it recomputes.

    Full recomputation but for named outputs; every n-th layer whole (torchtitan's first kind); a
    list of modules (Megatron), attention's core by default; or all but the outputs of attention
    and of every second matrix product (torchtitan's kind by operator).
    """
    detail = block.run.training.checkpointing_detail
    every, outputs = _EVERY_NTH.search(detail), _KEPT_OUTPUTS.search(detail)
    boundary = block.kernels.stream_bytes * block.stream
    if outputs is not None:
        return boundary + block.element * _named_outputs(block, outputs.group(1))
    if every is not None and int(every.group(1)) > 0:
        share = 1 / int(every.group(1))
        return everything * (1 - share) + boundary * share
    if block.kernels.megatron:
        return everything - _recomputed_modules(block, detail)
    products = block.query + block.key + block.value + 2 * block.hidden
    products += 2 * activated_width(block)
    nvfp4 = block.run.training.recipe is word.QuantRecipe.NVFP4
    kept = boundary + block.element * (block.query + products / 2)
    return kept * (_NVFP4_SHARE if nvfp4 else 1.0)


def _named_outputs(block: Block, names: str) -> float:
    """Return the width of the outputs that full recomputation is told to keep."""
    latent = block.run.model.latent
    sizes = {
        "router gate": 2.0 * block.run.model.num_experts,
        "wo": block.stream,
        "wkv_a": float(latent.kv_rank + latent.rope_dim) if latent else 0.0,
    }
    return sum(sizes.get(name.strip(), 0.0) for name in names.split("+"))


def _recomputed_modules(block: Block, detail: str) -> float:
    """Return the bytes that Megatron's recomputed modules do not keep."""
    listed = _RECOMPUTED.search(detail)
    modules = set(listed.group(1).split()) if listed else {"core_attn"}
    saved = 0.0
    if "core_attn" in modules and block.run.training.attention is word.AttentionKernel.EAGER:
        saved += scores_bytes(block)
    if "layernorm" in modules:
        saved += 2 * block.element * block.stream
    if "mla_up_proj" in modules:
        saved += block.element * (block.query + block.key + block.value)
    if modules & {"moe_act", "mlp"}:
        saved += block.element * activated_width(block)
    return saved
