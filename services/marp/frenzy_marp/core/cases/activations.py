"""Bytes that one block keeps for backward, and what its backward needs beside them.

Every function returns bytes per token of one rank; ``e`` is the bytes of an activation. Sources:
Korthikanti et al. (arXiv 2205.05198) for Megatron's blocks, transformers' modeling code and traces
of it for Hugging Face's, the partitioner of torch.compile (it recomputes what is pointwise, except
what backward has to materialise: the inputs of matrix products).
"""

import re
from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.kernels import Kernels, kernels

# Both norms read the same input: attention and MLP are added to it together.
_PARALLEL_RESIDUAL = frozenset({word.Family.GPT_NEOX, word.Family.FALCON, word.Family.PHI})
_NO_ATTENTION_DROPOUT = frozenset({word.Family.OPT, word.Family.BLOOM})  # 0 in their configs
_EVERY_NTH = re.compile(r"every (\d+)\w* layer")
_RECOMPUTED = re.compile(r"\[([\w ]*)\]")
_KEPT_OUTPUTS = re.compile(r"outputs are kept: (.*)")
_NVFP4_SHARE = 0.45  # inputs of matrix products are kept in 4 bit: measured, selective kind
_STATISTICS = 4  # log-sum-exp of a row of attention scores, fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBytes:
    """Of one block, a token: ``kept`` until backward, ``work`` at the peak of its backward.

    ``work`` is recomputed activations (with checkpointing) and gradient temporaries.
    """

    kept: float
    work: float


@dataclass(frozen=True, slots=True)
class _Widths:
    """Widths of a block on one rank, in elements."""

    hidden: float  # replicated over tensor ranks
    split_hidden: float  # divided where sequence parallelism is on
    query: float
    key: float
    value: float
    inner: float
    tensor: int


def block_bytes(run: Run) -> BlockBytes:
    """Return what an average block keeps and needs, bytes per token."""
    chosen = kernels(run)
    widths = _widths(run)
    element = run.training.compute_dtype.size_bytes
    everything = _everything(run, chosen, widths, element)
    temporaries = _temporaries(run, widths, element)
    if run.training.checkpointing is word.Checkpointing.FULL:
        boundary = chosen.stream_bytes * widths.split_hidden
        return BlockBytes(kept=boundary, work=everything + temporaries)
    if run.training.checkpointing is word.Checkpointing.SELECTIVE:
        kept = _selective(run, chosen, widths, element)
        return BlockBytes(kept=kept, work=max(0.0, everything - kept) + temporaries)
    return BlockBytes(kept=everything, work=temporaries)


def _widths(run: Run) -> _Widths:
    model, parallel = run.model, run.parallelism
    tensor = parallel.tensor
    hidden = float(model.hidden_size)
    latent = model.latent
    query = model.num_heads * model.head_dim
    key = value = model.num_kv_heads * model.head_dim
    if latent is not None:
        query = key = model.num_heads * (latent.nope_dim + latent.rope_dim)
        value = model.num_heads * latent.value_dim
    return _Widths(
        hidden=hidden,
        split_hidden=hidden / tensor if parallel.sequence_parallel else hidden,
        query=query / tensor,
        key=key / tensor,
        value=value / tensor,
        inner=model.intermediate_size / tensor,
        tensor=tensor,
    )


def _everything(run: Run, chosen: Kernels, widths: _Widths, element: int) -> float:
    return (
        _norms(run, chosen, widths, element)
        + _attention(run, chosen, widths, element)
        + _feed_forward(run, chosen, widths, element)
        + _adapters(run, chosen, widths, element)
        + _residual_dropout(run, widths)
        + _compiled_extra(chosen, widths, element)
    )


def _norms(run: Run, chosen: Kernels, widths: _Widths, element: int) -> float:
    """Two norms: input and output each; unfused RMSNorm keeps an fp32 copy instead, and one more.

    The output is kept only where a trained matrix reads it.
    """
    one_input = chosen.stream_bytes if chosen.fused_norm else 4 + element
    if not chosen.fused_norm and run.training.method is not word.Method.FULL:
        one_input = 4  # a frozen norm weight needs no normalised copy
    before_attention = _trained(run, word.Target.Q, word.Target.K, word.Target.V)
    before_feed_forward = _trained(run, word.Target.GATE, word.Target.UP)
    outputs = element * (before_attention + before_feed_forward)
    count = 4 if run.model.family is word.Family.GEMMA2 else 2
    inputs = 1 if run.model.family in _PARALLEL_RESIDUAL else count
    query_norms = 0.0
    if run.model.family is word.Family.QWEN3:
        query_norms = (one_input + element) * (widths.query + widths.key)
    return (inputs * one_input + outputs) * widths.split_hidden + query_norms


def _attention(run: Run, chosen: Kernels, widths: _Widths, element: int) -> float:
    """Query, key, value and output; row statistics, or the scores where they are written out."""
    query, key, value = widths.query, widths.key, widths.value
    grouped = run.model.num_kv_heads < run.model.num_heads and run.model.latent is None
    repeats = chosen.hugging_face and run.training.attention is not word.AttentionKernel.FLASH
    if grouped and repeats:
        key = value = query
    kept = element * (query + key + value + query)
    if chosen.whole_qkv:
        kept += element * (query + key)  # value is a view of the whole projection
    elif chosen.fused_qkv and run.model.max_positions == 0:
        kept += element * (query + key)
    if chosen.packed_attention:
        kept += element * (query + key + value)
        if run.parallelism.sequence_parallel:  # inputs of its four exchanges of a block
            kept += 4 * element * widths.split_hidden
    if run.model.latent is not None:
        kept += element * 2 * (run.model.latent.kv_rank + (run.model.latent.q_rank or 0))
    heads = run.model.num_heads / widths.tensor
    if run.training.attention is word.AttentionKernel.EAGER:
        return kept + _scores(run, chosen, element) * heads
    return kept + _STATISTICS * heads


def _scores(run: Run, chosen: Kernels, element: int) -> float:
    """Bytes of the written-out scores of one head, a token: probabilities, mask, dropped copy."""
    length = run.training.sequence_length / run.parallelism.context
    mask = 1 if _drops(run) and run.model.family not in _NO_ATTENTION_DROPOUT else 0
    if chosen.hugging_face and element == 2:
        return length * (4 + element + mask)  # softmax in fp32, its 16-bit copy
    return length * (element + mask * (1 + element))


def _feed_forward(run: Run, chosen: Kernels, widths: _Widths, element: int) -> float:
    model = run.model
    if not model.num_experts:
        return _mlp(run, chosen, widths.inner, element)
    layers = model.num_layers
    dense_share = min(1.0, model.num_dense_layers / layers)
    width = (model.expert_intermediate_size or model.intermediate_size) / (
        run.parallelism.expert_tensor
    )
    # Rows are copied to their experts and back, and weighted: input and output of each choice.
    copies = 2 if run.training.adapter is None else 1
    if run.parallelism.expert > 1:
        copies += 2  # sent to the ranks of the experts, and permuted there
    one = _mlp(run, chosen, width, element, looped=True) + copies * element * widths.hidden
    routed = model.experts_per_token * one
    if run.parallelism.sequence_parallel:
        routed /= widths.tensor  # tokens are divided, experts are not
    shared = _mlp(run, chosen, model.shared_expert_intermediate_size / widths.tensor, element)
    dense = _mlp(run, chosen, widths.inner, element)
    return dense_share * dense + (1 - dense_share) * (routed + shared)


def _mlp(run: Run, chosen: Kernels, inner: float, element: int, *, looped: bool = False) -> float:
    """Gated: gate, activated gate, up, product. Plain: before and after the activation.

    The product is kept where the next matrix is trained; in a recomputed block it is still there
    when that matrix's backward, the highest point, begins.
    """
    recomputed = run.training.checkpointing is word.Checkpointing.FULL and not looped
    down_input = 1 if recomputed else _trained(run, word.Target.DOWN)
    if run.model.gated_mlp:
        inside = 2 if chosen.fused_gate else 3
        return element * inner * (inside + down_input)
    if run.model.family is word.Family.GPT2 and not chosen.compiled:
        return element * inner * 4.75  # GELU written out: cube, tanh, sums and products
    return element * inner * (1 + down_input)


def _adapters(run: Run, chosen: Kernels, widths: _Widths, element: int) -> float:
    """Each adapter's inner value, and its dropout mask of a byte unless a kernel fuses it."""
    adapter = run.training.adapter
    if adapter is None:
        return 0.0
    inputs = {
        word.Target.Q: widths.hidden,
        word.Target.K: widths.hidden,
        word.Target.V: widths.hidden,
        word.Target.O: widths.query,
        word.Target.GATE: widths.hidden,
        word.Target.UP: widths.hidden,
        word.Target.DOWN: widths.inner,
    }
    named = [inputs[target] for target in adapter.targets if target in inputs]
    if chosen.fused_qkv and {word.Target.Q, word.Target.K, word.Target.V} <= set(adapter.targets):
        named = named[2:]  # one adapter on the fused projection
    inner = element * adapter.rank * len(named)
    if chosen.fused_norm and run.model.norm is word.Norm.RMS:
        return inner
    mask = 1 if adapter.dropout > 0 else 0
    return inner + mask * sum(named)


def _residual_dropout(run: Run, widths: _Widths) -> float:
    """Two masks of a byte an element, where the family drops what it adds to the stream."""
    return 2 * widths.split_hidden if _drops(run) else 0.0


def _drops(run: Run) -> bool:
    """Return whether blocks drop values: later families do not, whatever adapters do."""
    return run.training.dropout > 0 and run.model.norm is word.Norm.LAYER


def _compiled_extra(chosen: Kernels, widths: _Widths, element: int) -> float:
    """Count copies of the stream: the partitioner keeps both sums of a block, thunder two more."""
    copies = 1 if chosen.compiled else 0
    return element * widths.split_hidden * (copies + (2 if chosen.thunder else 0))


def _selective(run: Run, chosen: Kernels, widths: _Widths, element: int) -> float:
    """Return what selective checkpointing keeps, by what the set-up says it recomputes.

    Every n-th layer whole (torchtitan's first kind); a list of modules (Megatron); attention's
    core (Megatron's default); or all but the outputs of attention and of every second matrix
    product (torchtitan's kind by operator).
    """
    everything = _everything(run, chosen, widths, element)
    detail = run.training.checkpointing_detail
    every = _EVERY_NTH.search(detail)
    outputs = _KEPT_OUTPUTS.search(detail)
    boundary = chosen.stream_bytes * widths.split_hidden
    if outputs is not None:
        return boundary + element * _named_outputs(run, widths, outputs.group(1))
    if every is not None and int(every.group(1)) > 0:
        share = 1 / int(every.group(1))
        return everything * (1 - share) + boundary * share
    if chosen.megatron:
        return everything - _recomputed_modules(run, chosen, widths, element, detail)
    products = widths.query + widths.key + widths.value + 2 * widths.hidden
    products += 2 * _activated(run, widths)
    share = _NVFP4_SHARE if run.training.recipe is word.QuantRecipe.NVFP4 else 1.0
    return (boundary + element * (widths.query + products / 2)) * share


def _named_outputs(run: Run, widths: _Widths, names: str) -> float:
    """Return the width of the outputs that full recomputation is told to keep."""
    latent = run.model.latent
    sizes = {
        "router gate": 2.0 * run.model.num_experts,
        "wo": widths.split_hidden,
        "wkv_a": float(latent.kv_rank + latent.rope_dim) if latent else 0.0,
    }
    return sum(sizes.get(name.strip(), 0.0) for name in names.split("+"))


def _recomputed_modules(
    run: Run, chosen: Kernels, widths: _Widths, element: int, detail: str
) -> float:
    """Return the bytes that Megatron's recomputed modules do not keep."""
    listed = _RECOMPUTED.search(detail)
    modules = set(listed.group(1).split()) if listed else {"core_attn"}
    heads = run.model.num_heads / widths.tensor
    saved = 0.0
    if "core_attn" in modules and run.training.attention is word.AttentionKernel.EAGER:
        saved += _scores(run, chosen, element) * heads
    if "layernorm" in modules:
        saved += 2 * element * widths.split_hidden
    if "mla_up_proj" in modules:
        saved += element * (widths.query + widths.key + widths.value)
    if "moe_act" in modules or "mlp" in modules:
        saved += element * _activated(run, widths)
    return saved


def _activated(run: Run, widths: _Widths) -> float:
    """Return the width of the activated values of the feed-forward part of a block."""
    model = run.model
    if not model.num_experts:
        return widths.inner
    routed = float(model.experts_per_token * model.expert_intermediate_size)
    if run.parallelism.sequence_parallel:
        routed /= widths.tensor
    return routed + model.shared_expert_intermediate_size / widths.tensor


def _temporaries(run: Run, widths: _Widths, element: int) -> float:
    """Gradients inside a block's backward: of the product, gate and up; and of the stream."""
    model = run.model
    inner = widths.inner
    if model.num_experts:
        width = model.expert_intermediate_size or model.intermediate_size
        routed = model.experts_per_token * width / run.parallelism.expert_tensor
        if kernels(run).hugging_face:
            routed /= model.num_experts  # experts run one after the other
        if run.parallelism.sequence_parallel:
            routed /= widths.tensor
        shared = model.shared_expert_intermediate_size / widths.tensor
        inner = max(routed, shared, inner if model.num_dense_layers else 0.0)
    tensors = 3 if model.gated_mlp else 2
    dispatched = 0.0
    if model.num_experts and not kernels(run).hugging_face:
        dispatched = 2 * model.experts_per_token * widths.hidden
        if run.parallelism.sequence_parallel:
            dispatched /= widths.tensor
    streams = 6 if run.training.compiled else 3  # a compiled backward frees its inputs at its end
    return element * (tensors * inner + dispatched + streams * widths.split_hidden)


def _trained(run: Run, *targets: word.Target) -> int:
    """Return 1 when one of the matrices has a gradient of its own, or an adapter that reads it."""
    adapter = run.training.adapter
    if adapter is None:
        return 1
    return int(any(target in adapter.targets for target in targets))
