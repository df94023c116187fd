"""Bytes that attention keeps for backward, per token of one rank."""

from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.block import Block
from frenzy_marp.core.cases.kernels import torch_from

# 0 in their configs, or not applied to the scores.
_NO_DROPOUT: Final = frozenset({word.Family.OPT, word.Family.BLOOM, word.Family.FALCON})
# Softmax in the precision of the scores, unless autocast makes it fp32.
_PLAIN_SOFTMAX: Final = frozenset(
    {word.Family.GPT2, word.Family.BERT, word.Family.FALCON, word.Family.T5}
)
_NO_ROTATION: Final = frozenset({word.Family.BLOOM})  # and no learned positions either
_STATISTICS: Final = 4  # log-sum-exp of a row of scores, fp32


def attention_bytes(block: Block) -> float:
    """Return query, key, value and output; row statistics, or the scores if written out."""
    element, latent = block.element, block.run.model.latent
    query, key, value = block.query, block.key, block.value
    kept = element * (2 * query + key + value)
    if _repeats_heads(block):
        kept = element * 4 * query
    kept += element * _projection(block)
    if block.kernels.packed_attention:
        kept += element * (query + key + value)
        if block.run.parallelism.sequence_parallel:  # inputs of the block's four exchanges
            kept += 4 * element * block.stream
    if latent is not None:
        kept += element * 2 * (latent.kv_rank + (latent.q_rank or 0))
    if block.run.training.attention is word.AttentionKernel.EAGER:
        return kept + scores_bytes(block)
    return kept + _STATISTICS * block.heads


def scores_bytes(block: Block) -> float:
    """Return the written-out scores: probabilities, dropout mask, dropped copy.

    Megatron in 16 bit: 2 + 1 + 2 bytes, the 5 a s of Korthikanti et al. Hugging Face's softmax is
    fp32 with a 16-bit copy, in some families under autocast only; Gemma 2 caps its scores, OPT
    limited them from below until transformers 4.48 (of the days of torch 2.6).
    """
    run, element = block.run, block.element
    length = run.training.sequence_length / run.parallelism.context
    mask = 1 if block.drops() and run.model.family not in _NO_DROPOUT else 0
    upcast = run.training.autocast or run.model.family not in _PLAIN_SOFTMAX
    capped = element if run.model.family is word.Family.GEMMA2 else 0
    if run.model.family is word.Family.OPT and not torch_from(run.training.torch_version, 2, 6):
        capped = element
    if block.kernels.hugging_face and element == 2 and upcast:
        return block.heads * length * (4 + element + mask + capped)
    return block.heads * length * (element + mask * (1 + element) + capped)


def _projection(block: Block) -> float:
    """Return the width of a fused projection that outlives its rotated query and key.

    Value is a view of it. GPT-NeoX also copies the value for fused attention, and keeps nothing
    of the projection where scores are written out. Without rotary positions all are views.
    """
    if not block.kernels.whole_qkv and not block.kernels.fused_qkv:
        return 0.0
    model = block.run.model
    unrotated = model.max_positions > 0 or model.family in _NO_ROTATION
    if block.kernels.hugging_face and unrotated:
        return 0.0
    if block.kernels.hugging_face and block.run.model.family is word.Family.GPT_NEOX:
        eager = block.run.training.attention is word.AttentionKernel.EAGER
        return 0.0 if eager else block.query + block.key + block.value
    return block.query + block.key


def _repeats_heads(block: Block) -> bool:
    """Return whether grouped keys and values are copied to all heads.

    transformers does so unless attention is flash, or torch (2.5 and later) takes grouped heads,
    or the one head of multi-query attention is broadcast; litgpt always.
    """
    model, chosen = block.run.model, block.kernels
    grouped = model.num_kv_heads < model.num_heads and model.latent is None
    if chosen.hugging_face and model.family is word.Family.FALCON and model.num_kv_heads == 1:
        return False
    flash = block.run.training.attention is word.AttentionKernel.FLASH
    native = block.run.training.attention is word.AttentionKernel.SDPA and torch_from(
        block.run.training.torch_version, 2, 5
    )
    return grouped and (chosen.whole_qkv or (chosen.hugging_face and not flash and not native))
