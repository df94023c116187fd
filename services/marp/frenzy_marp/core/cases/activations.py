"""Bytes that one block keeps for backward, and what its backward needs beside them.

Every function returns bytes per token of one rank. Sources: Korthikanti et al. (arXiv 2205.05198)
for Megatron's blocks; transformers' modeling code and traces of it for Hugging Face's; the
partitioner of torch.compile, which recomputes what is pointwise except what backward has to
materialise: the inputs of matrix products.
"""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.attention import attention_bytes
from frenzy_marp.core.cases.block import Block, block_of
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.feed_forward import (
    dispatched_width,
    feed_forward_bytes,
    gradient_width,
)
from frenzy_marp.core.cases.selective import selective_bytes

# Both norms read the same input: attention and MLP are added to it together.
_PARALLEL_RESIDUAL: Final = frozenset({word.Family.GPT_NEOX, word.Family.FALCON, word.Family.PHI})
_QKV: Final = (word.Target.Q, word.Target.K, word.Target.V)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBytes:
    """Of one block, a token: ``kept`` until backward, ``work`` at the peak of its backward.

    ``work`` is recomputed activations (with checkpointing) and gradient temporaries.
    """

    kept: float
    work: float


def block_bytes(run: Run) -> BlockBytes:
    """Return what an average block keeps and needs, bytes per token."""
    block = block_of(run)
    everything, temporaries = _everything(block), _temporaries(block)
    if run.training.checkpointing is word.Checkpointing.FULL:
        boundary = block.kernels.stream_bytes * block.stream
        copied = not block.kernels.fused_norm and block.kernels.stream_bytes < 4
        again = everything if copied else everything - boundary  # the first norm's input is kept
        return BlockBytes(kept=boundary, work=again + temporaries)
    if run.training.checkpointing is word.Checkpointing.SELECTIVE:
        kept = selective_bytes(block, everything)
        return BlockBytes(kept=kept, work=max(0.0, everything - kept) + temporaries)
    return BlockBytes(kept=everything, work=temporaries)


def _everything(block: Block) -> float:
    return (
        _norms(block)
        + attention_bytes(block)
        + feed_forward_bytes(block)
        + _adapters(block)
        + _residual_dropout(block)
        + _sums(block)
        + _cross_attention(block)
    )


def _norms(block: Block) -> float:
    """Return inputs and outputs of the norms.

    Unfused RMSNorm keeps an fp32 copy of its input and, if its weight is trained, the normalised
    values. An output is kept where a trained matrix reads it; autocast makes a 16-bit copy of an
    fp32 output for every matrix that does.
    """
    model, frozen = block.run.model, block.run.training.method is not word.Method.FULL
    one_input = block.kernels.stream_bytes
    gemma = model.family in {word.Family.GEMMA, word.Family.GEMMA2}  # weights in fp32 too
    if not block.kernels.fused_norm:
        one_input = 4 if frozen else 4 + (4 if gemma else block.element)
    if model.family is word.Family.T5 and block.element < 4:
        one_input += block.element  # it multiplies the input itself, not its fp32 copy
    casts = block.kernels.stream_bytes > block.element
    readers = 3 if casts and not block.kernels.fused_qkv else 1
    outputs = readers * block.trained(*_QKV)
    readers = 2 if casts and model.gated_mlp else 1
    if model.family is not word.Family.FALCON:  # whose one norm feeds both
        outputs += readers * block.trained(word.Target.GATE, word.Target.UP)
    count = 4 if model.family is word.Family.GEMMA2 else 2
    inputs = 1 if model.family in _PARALLEL_RESIDUAL else count
    kept = (inputs * one_input + outputs * block.element) * block.stream
    if model.family is word.Family.QWEN3:  # a norm on query and key
        kept += one_input * (block.query + block.key)
    return kept


def _cross_attention(block: Block) -> float:
    """Return what T5's decoder blocks, half of them all, keep of attention to the encoder.

    A norm, query and output, and keys and values of as many encoder tokens.
    """
    if block.run.model.family is not word.Family.T5:
        return 0.0
    norm = _norms(block) / 2
    mask = block.stream if block.drops() else 0.0
    return (norm + attention_bytes(block) + mask) / 2


def _adapters(block: Block) -> float:
    """Return each adapter's inner value; with dropout the mask and its own dropped input too.

    Kernels that fuse the adapters keep neither.
    """
    adapter = block.run.training.adapter
    if adapter is None:
        return 0.0
    inputs = {
        word.Target.Q: block.hidden,
        word.Target.K: block.hidden,
        word.Target.V: block.hidden,
        word.Target.O: block.query,
        word.Target.GATE: block.hidden,
        word.Target.UP: block.hidden,
        word.Target.DOWN: block.inner,
    }
    widths = [inputs[target] for target in adapter.targets if target in inputs]
    if block.kernels.fused_qkv and set(_QKV) <= set(adapter.targets):
        widths = widths[2:]  # one adapter on the fused projection
    inner = block.element * adapter.rank * len(widths)
    dropped = (1 + block.element) * sum(widths) if block.drops_adapter_inputs() else 0.0
    return inner + dropped


def _residual_dropout(block: Block) -> float:
    """Return two masks of a byte an element, where the family drops what it adds."""
    return 2 * block.stream if block.drops() else 0.0


def _sums(block: Block) -> float:
    """Return copies of the stream.

    Compiled blocks keep both of their sums; litgpt's attention makes its output contiguous;
    thunder keeps two more.
    """
    litgpt = block.kernels.whole_qkv
    copies = (1 if block.kernels.compiled or litgpt else 0) + (2 if block.kernels.thunder else 0)
    return copies * block.element * block.stream


def _temporaries(block: Block) -> float:
    """Return the gradients inside a block's backward: of product, gate, up, and the stream.

    An adapter's branch has gradients of its own input and output; compiled code frees what it
    was given at its end only.
    """
    tensors = 3 if block.run.model.gated_mlp else 2
    streams = 1 if block.run.training.adapter is None else 3
    if block.run.training.compiled:
        streams = 6
    width = tensors * gradient_width(block) + dispatched_width(block) + streams * block.stream
    return block.element * width
