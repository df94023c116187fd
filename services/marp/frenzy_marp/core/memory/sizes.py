"""Every size that a block or an end of a model allocates, by name, for many micro-batches at once.

All of them are affine in the micro-batch before the allocator rounds them: a fixed part (weights)
or a part per sequence (activations). ``program.py`` counts tensors by these names.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from frenzy_marp.core.memory.mixture import parameter_sizes
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.tape import BLOCK_BYTES, rounded

Bytes = npt.NDArray[np.int64]

_FP32: Final = 4
_INT64: Final = 8
# Rotary embedding works on halves of them.
_HALVED: Final = ("query", "key", "rotated query", "rotated key")


def per_sequence(shape: Shape) -> dict[str, int]:
    """Return the bytes per sequence of what grows with the micro-batch."""
    model, length, element = shape.model, shape.length, shape.element
    query, key = model.query_size, model.key_size
    scores = model.num_heads * length * length
    chunk = model.chunk_length(length)
    return _routed(shape) | {
        "hidden": length * model.hidden_size * element,
        "query": length * query * element,
        "key": length * key * element,
        "query, key and value": length * (query + 2 * key) * element,
        "rotated query": length * model.num_heads * model.rotary_dim * element,
        "rotated key": length * model.num_kv_heads * model.rotary_dim * element,
        "feed-forward": length * model.intermediate_size * element,
        "gate and up": 2 * length * model.intermediate_size * element,
        "logits": length * model.vocab_size * element,
        "scores": scores * element,
        "fp32 hidden": length * model.hidden_size * _FP32,
        "fp32 logits": length * model.vocab_size * _FP32,
        "fp32 scores": scores * _FP32,
        "fp32 query": length * query * _FP32,
        "fp32 key": length * key * _FP32,
        "mask": length * length * element,
        "hidden mask": length * model.hidden_size,
        "query mask": length * query,
        "feed-forward mask": length * model.intermediate_size,
        "fp32 column": length * _FP32,
        "column": length * element,
        "query column": length * model.num_heads * element,
        "key column": length * model.num_kv_heads * element,
        "log-sum-exp": length * model.num_heads * _FP32,
        "fp32 key column": length * model.num_kv_heads * _FP32,
        "labels": length * _INT64,
        "chunk's hidden": chunk * model.hidden_size * element,
        "chunk's logits": chunk * model.vocab_size * element,
        "chunk's fp32 logits": chunk * model.vocab_size * _FP32,
        "adapter": length * (model.adapters.rank if model.adapters else 0) * element,
    }


def _routed(shape: Shape) -> dict[str, int]:
    """Return the bytes per sequence of what a mixture of experts makes."""
    experts = shape.model.experts
    if experts is None:
        return {}
    pairs, element = shape.length * experts.per_token, shape.element
    inner = pairs * shape.model.intermediate_size * element
    return {
        "routed hidden": pairs * shape.model.hidden_size * element,
        "fp32 routed hidden": pairs * shape.model.hidden_size * _FP32,
        "routed feed-forward": inner,
        "routed gate and up": 2 * inner,
        "routing indices": pairs * _INT64,
        "fp32 routing weights": pairs * _FP32,
        "routing weights": pairs * element,
        "router logits": shape.length * experts.count * element,
        "fp32 router logits": shape.length * experts.count * _FP32,
    }


def fixed(shape: Shape) -> dict[str, int]:
    """Return the bytes of what does not depend on the micro-batch: parameters, mostly."""
    model, element = shape.model, shape.element
    hidden, inner = model.hidden_size, model.intermediate_size
    query, key = model.query_size, model.key_size
    fused = query + 2 * key
    elements = {
        "query weight": hidden * query,
        "key weight": hidden * key,
        "fused weight": hidden * fused,
        "feed-forward weight": hidden * inner,
        "gate and up weight": 2 * hidden * inner,
        "vocabulary": model.vocab_size * hidden,
        "positions": (model.max_positions or 0) * hidden,
        "hidden bias": hidden,
        "query bias": query,
        "key bias": key,
        "fused bias": fused,
        "feed-forward bias": inner,
        "gate and up bias": 2 * inner,
        "vocabulary bias": model.vocab_size,
        "head bias": model.head_dim,
        # A weight and its bias are gathered into one buffer.
        "query weight and bias": (hidden + 1) * query,
        "key weight and bias": (hidden + 1) * key,
        "fused weight and bias": (hidden + 1) * fused,
        "output weight and bias": (query + 1) * hidden,
        "up weight and bias": (hidden + 1) * inner,
        "down weight and bias": (inner + 1) * hidden,
        "gate and up weight and bias": 2 * (hidden + 1) * inner,
        "vocabulary and bias": (hidden + 1) * model.vocab_size,
        "position rows": shape.length * hidden,
        "rotary table": shape.length * model.rotary_dim,
    }
    experts = model.experts
    if experts is not None:
        elements |= parameter_sizes(shape, experts)
    rows = {"hidden": hidden, "query": query, "key": key, "head": model.head_dim}
    if model.adapters is not None:
        widths = {"hidden": hidden, "query": query, "key": key, "fused": fused}
        widths |= {"feed-forward": inner, "gate and up": 2 * inner}
        elements |= {f"adapter {name}": model.adapters.rank * w for name, w in widths.items()}
    return {
        "loss": _FP32,
        **{name: count * element for name, count in elements.items()},
        **{f"fp32 {name} row": count * _FP32 for name, count in rows.items()},
        **({} if experts is None else {"expert counters": experts.count * _FP32}),
    }


def names(shape: Shape) -> dict[int, str]:
    """Return the name of every size of a shape, by its rounded bytes."""
    table = {size * shape.sequences: name for name, size in per_sequence(shape).items()}
    found = {rounded(size): name for size, name in table.items()}
    found |= {rounded(size): name for name, size in fixed(shape).items()}
    halves = {_half(per_sequence(shape)[name] * shape.sequences): name for name in _HALVED}
    return found | {size: f"half {name}" for size, name in halves.items() if size not in found}


def rounded_sizes(shape: Shape, used: tuple[str, ...], micro_batches: Bytes) -> Bytes:
    """Return the allocated bytes of the ``used`` names (rows) at each micro-batch (columns)."""
    growing, constant = per_sequence(shape), fixed(shape)
    slopes = [growing.get(name.removeprefix("half "), 0) for name in used]
    offsets = [constant.get(name, 0) for name in used]
    exact = np.multiply.outer(np.array(slopes, dtype=np.int64), micro_batches)
    exact += np.array(offsets, dtype=np.int64)[:, None]
    sizes = rounded_up(exact)
    for row, name in enumerate(used):
        if name.startswith("half "):
            sizes[row] = rounded_up(sizes[row] // 2)
    return sizes


def rounded_up(sizes: Bytes) -> Bytes:
    """Return what the allocator takes for tensors of these bytes."""
    return -(-sizes // BLOCK_BYTES) * BLOCK_BYTES


def _half(size: int) -> int:
    return rounded(rounded(size) // 2)
