"""Bytes that the feed-forward part of a block keeps for backward, per token of one rank."""

from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.block import Block

_GELU_NEW: Final = frozenset({word.Family.GPT2, word.Family.PHI})  # in transformers
_RELU: Final = frozenset({word.Family.OPT, word.Family.T5})
_WRITTEN_OUT_GELU: Final = 5  # tensors of the inner width: cube, tanh, sums and products


def feed_forward_bytes(block: Block) -> float:
    """Return what a dense block keeps, or the average of a model's dense and MoE blocks."""
    model = block.run.model
    if not model.num_experts:
        return _mlp(block, block.inner)
    dense_share = min(1.0, model.num_dense_layers / model.num_layers)
    shared = model.shared_expert_intermediate_size / block.run.parallelism.tensor
    mixture = _routed(block) + _mlp(block, shared)
    return dense_share * _mlp(block, block.inner) + (1 - dense_share) * mixture


def activated_width(block: Block) -> float:
    """Return the width of the activated values: dense, or of a token's experts."""
    model = block.run.model
    if not model.num_experts:
        return block.inner
    routed = model.experts_per_token * _expert_width(block) * block.routed_share
    return routed + model.shared_expert_intermediate_size / block.run.parallelism.tensor


def gradient_width(block: Block) -> float:
    """Return the width of one gradient inside the feed-forward part, at its widest."""
    model = block.run.model
    if not model.num_experts:
        return block.inner
    routed = model.experts_per_token * _expert_width(block) * block.routed_share
    if block.kernels.hugging_face:
        routed /= model.num_experts  # experts run one after the other
    shared = model.shared_expert_intermediate_size / block.run.parallelism.tensor
    return max(routed, shared, block.inner if model.num_dense_layers else 0.0)


def dispatched_width(block: Block) -> float:
    """Return the width of routed inputs and outputs while all experts run at once."""
    model = block.run.model
    if not model.num_experts or block.kernels.hugging_face:
        return 0.0
    return 2 * model.experts_per_token * block.hidden * block.routed_share


def _routed(block: Block) -> float:
    """Return what the routed experts keep: each choice's own values, and copies of its rows."""
    copies = 2 if block.run.training.adapter is None else 1  # frozen matrices keep no input
    if block.run.parallelism.expert > 1:
        copies += 2  # sent to the ranks of the experts, and permuted there
    one = _mlp(block, _expert_width(block), looped=True) + copies * block.element * block.hidden
    return block.run.model.experts_per_token * one * block.routed_share


def _mlp(block: Block, inner: float, *, looped: bool = False) -> float:
    """Return gate, activated gate, up and product; or before and after the activation.

    The product is kept where the next matrix is trained; in a recomputed block it is still there
    when that matrix's backward, the highest point, begins (not with experts in a loop).
    """
    training = block.run.training
    recomputed = training.checkpointing is word.Checkpointing.FULL and not looped
    product = 1 if recomputed else block.trained(word.Target.DOWN)
    if block.run.model.gated_mlp:
        inside = 2 if block.kernels.fused_gate else 3
        return block.element * inner * (inside + product)
    family, eager = block.run.model.family, block.kernels.hugging_face
    if family in _GELU_NEW and eager and not block.kernels.compiled:
        return block.element * inner * _WRITTEN_OUT_GELU
    if family in _RELU:  # keeps its output only, the next matrix's input
        dropped = 1 + block.element if family is word.Family.T5 and block.drops() else 0
        return (block.element + dropped) * inner
    return block.element * inner * (1 + product)


def _expert_width(block: Block) -> float:
    model = block.run.model
    width = model.expert_intermediate_size or model.intermediate_size
    return width / block.run.parallelism.expert_tensor
