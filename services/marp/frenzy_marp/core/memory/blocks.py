"""Decoders as transformers 5.24 computes them, written for the tape.

Follows models/*/modeling_*.py, integrations/sdpa_attention.py and loss/loss_utils.py, dropout 0,
no cache, packed sequences without padding; what differs between architectures is asked of their
``Structure``. A Python variable's end is a ``drop``.
"""

from collections.abc import Callable

from frenzy_marp.core.memory import norms
from frenzy_marp.core.memory import operators as op
from frenzy_marp.core.memory.mixture import mixture
from frenzy_marp.core.memory.shape import FP32_BYTES, Shape
from frenzy_marp.core.memory.tape import Tape, Value
from frenzy_shared.domain.adapters import Role
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.structure import FusedProjection, Norm, QueryKeyNorm, Residual, Softmax


def block(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run one decoder layer; ``x`` stays in scope, the caller's variable."""
    if shape.model.structure.residual is Residual.SEQUENTIAL:
        return _sequential(tape, shape, x)
    return _parallel(tape, shape, x)


def _sequential(tape: Tape, shape: Shape, x: Value) -> Value:
    wiring = shape.model.structure
    attended = _branch(tape, shape, x, attention)
    middle = op.add(tape, attended, x)
    if not wiring.keeps_attended:
        tape.drop(attended)
    fed = _branch(tape, shape, middle, feed_forward)
    out = op.add(tape, middle, fed)
    tape.drop(fed, middle, attended)
    return out


def _branch(
    tape: Tape, shape: Shape, x: Value, body: Callable[[Tape, Shape, Value], Value]
) -> Value:
    """Run attention or feed-forward between its norms."""
    wiring = shape.model.structure
    norm = normalise(tape, shape, x) if wiring.pre_norms else x
    out = body(tape, shape, norm)
    if wiring.pre_norms:
        tape.drop(norm)
    if wiring.post_norms:
        out = op.replaced(tape, out, normalise(tape, shape, out))
    if wiring.scales_residual:
        out = op.replaced(tape, out, op.scaled(tape, out))
    return out


def _parallel(tape: Tape, shape: Shape, x: Value) -> Value:
    """Add attention and feed-forward of the same input to it."""
    shared = shape.model.structure.residual is Residual.PARALLEL
    norm = normalise(tape, shape, x)
    attended = attention(tape, shape, norm)
    if not shared:
        tape.drop(norm)
        norm = normalise(tape, shape, x)
    fed = feed_forward(tape, shape, norm)
    if not shared:
        tape.drop(norm)
    both = op.add(tape, attended, fed)
    out = op.add(tape, both, x)
    tape.drop(norm, both, attended, fed)
    return out


def normalise(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run the architecture's normalisation over the hidden size."""
    width = shape.model.hidden_size
    return _normalised(tape, shape, x, shape.model.structure.norm, rows=shape.tokens, width=width)


def _normalised(tape: Tape, shape: Shape, x: Value, kind: Norm, *, rows: int, width: int) -> Value:
    weight = width * shape.element
    if kind is Norm.LAYER:
        return norms.layer_norm(tape, x, rows * shape.element, weight)
    if kind is Norm.LAYER_FULL:
        return norms.plain_layer_norm(tape, x, rows, width)
    return norms.rms_norm(tape, x, rows, width, weight, kind=kind)


def capped(tape: Tape, x: Value) -> Value:
    """Bend values by tanh(x / c) c, dropping ``x``."""
    small = op.replaced(tape, x, op.scaled(tape, x))
    bent = op.replaced(tape, small, op.elementwise(tape, small, saves_output=True))
    return op.replaced(tape, bent, op.scaled(tape, bent))


def attention(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run attention, from its projections to the one of its output."""
    model = shape.model
    query, key, values = _projections(tape, shape, x)
    if shape.attention is Attention.SDPA:
        mixed = _fused(tape, shape, query, key, values)
    else:
        mixed = _eager(tape, shape, query, key, values)
    widths = (model.query_size, model.hidden_size)
    out = _projected(tape, shape, mixed, Role.OUTPUT, widths, biased=model.output_bias)
    tape.drop(mixed, query, key, values)
    return out


def _projections(tape: Tape, shape: Shape, x: Value) -> tuple[Value, Value, Value]:
    """Make queries, keys and values, normalised and rotated as the architecture does."""
    model = shape.model
    if model.structure.fused is FusedProjection.NONE:
        query, key, values = _separate(tape, shape, x)
    else:
        query, key, values = _from_one_matrix(tape, shape, x)
    if model.structure.scales_query:
        query = op.replaced(tape, query, op.scaled(tape, query))
    kind = model.structure.query_key_norm
    if kind is not QueryKeyNorm.NONE:
        query = op.replaced(tape, query, _key_norm(tape, shape, query, kind, model.num_heads))
        key = op.replaced(tape, key, _key_norm(tape, shape, key, kind, model.num_kv_heads))
    # Fused attention returns the value's gradient in the projection's own layout.
    eager = shape.attention is Attention.EAGER
    parts = [
        op.transposed(tape, part) if eager or (model.rotary_dim and part is not values) else part
        for part in (query, key, values)
    ]
    if model.rotary_dim:
        turned = [
            _rotated(tape, shape, part, heads)
            for part, heads in zip(parts[:2], (model.num_heads, model.num_kv_heads), strict=True)
        ]
        tape.drop(*parts[:2], query, key)
        parts[:2] = turned
    elif eager:
        tape.drop(query, key)
    if eager:
        tape.drop(values)
    return parts[0], parts[1], parts[2]


def _separate(tape: Tape, shape: Shape, x: Value) -> tuple[Value, Value, Value]:
    model = shape.model
    parts = (
        (Role.QUERY, model.query_size),
        (Role.KEY, model.key_size),
        (Role.VALUE, model.key_size),
    )
    query, key, values = (
        _projected(tape, shape, x, role, (model.hidden_size, width), biased=model.attention_bias)
        for role, width in parts
    )
    return query, key, values


def _projected(
    tape: Tape, shape: Shape, x: Value, role: Role, widths: tuple[int, int], *, biased: bool
) -> Value:
    """Multiply with a block's matrix from and to ``widths``, and with its adapter if it has one.

    peft's layer: the matrix's own product, then A, B and the scale, then their sum.
    """
    narrow, wide = widths
    out_bytes = shape.activation(wide)
    bias = wide * shape.element if biased else 0
    out = op.linear(tape, x, out_bytes, narrow * wide * shape.element, bias)
    adapters = shape.model.adapters
    if adapters is None or role not in adapters.roles:
        return out
    source = op.dropout(tape, x, shape.dropped(narrow)) if adapters.dropout else x
    rank = adapters.rank
    low = op.linear(
        tape, source, shape.activation(rank), rank * narrow * shape.element, trains=True
    )
    if source is not x:
        tape.drop(source)
    high = op.linear(tape, low, out_bytes, rank * wide * shape.element, trains=True)
    tape.drop(low)
    scaled = op.replaced(tape, high, op.scaled(tape, high))
    total = op.add(tape, out, scaled)
    tape.drop(out, scaled)
    return total


def _from_one_matrix(tape: Tape, shape: Shape, x: Value) -> tuple[Value, Value, Value]:
    model = shape.model
    sizes = (model.query_size, model.key_size, model.key_size)
    fused = _projected(
        tape,
        shape,
        x,
        Role.FUSED,
        (model.hidden_size, sum(sizes)),
        biased=model.attention_bias,
    )
    widths = tuple(shape.activation(width) for width in sizes)
    if model.structure.fused is FusedProjection.SLICED:
        query, key, values = (op.part(tape, fused, width) for width in widths)
    else:
        query, key, values = op.split(tape, fused, widths)
    tape.drop(fused)
    return query, key, values


def _key_norm(tape: Tape, shape: Shape, x: Value, kind: QueryKeyNorm, heads: int) -> Value:
    width = shape.model.head_dim
    if kind is QueryKeyNorm.WHOLE:
        norm = shape.model.structure.norm
        return _normalised(tape, shape, x, norm, rows=shape.tokens, width=heads * width)
    norm = Norm.LAYER if kind is QueryKeyNorm.LAYER else Norm.RMS
    return _normalised(tape, shape, x, norm, rows=shape.tokens * heads, width=width)


def _rotated(tape: Tape, shape: Shape, x: Value, heads: int) -> Value:
    model = shape.model
    own_tables = model.structure.repeats_tables
    table = shape.length * model.rotary_dim * shape.element if own_tables else 0
    if not model.structure.joins_rotary:
        return op.rotary(tape, x, table)
    return op.joined_rotary(tape, x, shape.activation(heads * model.rotary_dim), table)


def _fused(tape: Tape, shape: Shape, query: Value, key: Value, values: Value) -> Value:
    """Run torch's fused attention; an explicit mask needs keys and values for every head."""
    model = shape.model
    grouped = model.num_kv_heads < model.num_heads
    repeated: list[Value] = []
    if shape.masked and grouped:
        repeated = [op.copied(tape, part, query.size_bytes) for part in (key, values)]
        key, values = repeated
    mask = shape.sequences * shape.length**2 * shape.element if shape.masked else 0
    statistics = FP32_BYTES * shape.tokens * model.num_heads
    out = op.flash_attention(tape, query, key, values, statistics, mask_bytes=mask)
    tape.drop(*repeated)
    if model.structure.joins_rotary and not model.structure.rotates_first:
        # Joined queries lie head by head, and so does what attention makes of them.
        out = op.replaced(tape, out, op.copied(tape, out))
    return out


def _eager(tape: Tape, shape: Shape, query: Value, key: Value, values: Value) -> Value:
    """Write the scores out."""
    full = shape.model.structure.softmax is Softmax.SCORES
    scores_bytes = shape.scores * (FP32_BYTES if full else shape.element)
    repeated = query.size_bytes
    grouped = shape.model.num_kv_heads < shape.model.num_heads
    late_values = None if grouped else values
    high_query, high_key = query, key
    if full:
        high_query = op.cast(tape, query, shape.tokens * shape.model.query_size * FP32_BYTES)
        high_key = op.cast(tape, key, shape.tokens * shape.model.key_size * FP32_BYTES)
    key_copy = op.copied(tape, high_key, high_query.size_bytes)
    value_copy = op.copied(tape, values, repeated) if late_values is None else None
    query_copy = op.copied(tape, high_query)
    raw = op.matmul(tape, query_copy, key_copy, scores_bytes)
    tape.drop(query_copy)
    if full:
        tape.drop(high_query, high_key)
    scores = op.scaled(tape, raw)
    tape.drop(raw)
    if shape.model.structure.caps_scores:
        scores = capped(tape, scores)
    masked = op.shifted(tape, scores)
    tape.drop(scores)
    weights = _softmax(tape, shape, masked)
    if value_copy is None:
        value_copy = op.copied(tape, values)
    mixed = op.matmul(tape, weights, value_copy, repeated)
    out = op.relaid(tape, mixed)
    tape.drop(mixed, weights, masked, key_copy, value_copy)
    return out


def _softmax(tape: Tape, shape: Shape, masked: Value) -> Value:
    if shape.model.structure.softmax is Softmax.COMPUTE:
        weights = op.softmax(tape, masked)
        tape.drop(masked)
        return weights
    high = op.cast(tape, masked, shape.scores * FP32_BYTES)
    probabilities = op.softmax(tape, high)
    tape.drop(high, masked)
    weights = op.cast(tape, probabilities, shape.scores * shape.element)
    if weights is not probabilities:
        tape.drop(probabilities)
    return weights


def feed_forward(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run the feed-forward part: gated or not, or a mixture of experts."""
    model = shape.model
    if model.experts is not None:
        name = model.activation
        return mixture(tape, shape, x, model.experts, lambda on, gate: _activation(on, name, gate))
    middle = _gated(tape, shape, x) if model.structure.gated else _active(tape, shape, x, Role.UP)
    widths = (model.intermediate_size, model.hidden_size)
    out = _projected(tape, shape, middle, Role.DOWN, widths, biased=model.mlp_bias)
    tape.drop(middle)
    return out


def _active(tape: Tape, shape: Shape, x: Value, role: Role) -> Value:
    """Project up and apply the activation function."""
    inner = _up(tape, shape, x, role)
    active = _activation(tape, shape.model.activation, inner)
    tape.drop(inner)
    return active


def _gated(tape: Tape, shape: Shape, x: Value) -> Value:
    """Multiply an active projection with a plain one."""
    if not shape.model.structure.fused_gate:
        active = _active(tape, shape, x, Role.GATE)
        up = _up(tape, shape, x, Role.UP)
        product = op.multiply(tape, active, up)
        tape.drop(active, up)
        return product
    both = _up(tape, shape, x, Role.GATE_AND_UP)
    inner = shape.activation(shape.model.intermediate_size)
    gate, up = op.split(tape, both, (inner, inner))
    active = _activation(tape, shape.model.activation, gate)
    product = op.multiply(tape, up, active)
    tape.drop(both, gate, up, active)
    return product


def _up(tape: Tape, shape: Shape, x: Value, role: Role) -> Value:
    model = shape.model
    width = model.intermediate_size * (2 if role is Role.GATE_AND_UP else 1)
    widths = (model.hidden_size, width)
    return _projected(tape, shape, x, role, widths, biased=model.mlp_bias)


def _activation(tape: Tape, name: str, x: Value) -> Value:
    if name == "gelu_new":
        return _gelu_new(tape, x)
    return op.elementwise(tape, x, saves_output=name == "relu")


def _gelu_new(tape: Tape, x: Value) -> Value:
    """Write out 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as NewGELUActivation does."""
    half = op.scaled(tape, x)
    cubed = op.square(tape, x)
    weighted = op.scaled(tape, cubed)
    tape.drop(cubed)
    inner = op.add(tape, x, weighted)
    tape.drop(weighted)
    argument = op.scaled(tape, inner)
    tape.drop(inner)
    bent = op.elementwise(tape, argument, saves_output=True)
    tape.drop(argument)
    raised = op.shifted(tape, bent)
    out = op.multiply(tape, half, raised)
    tape.drop(half, bent, raised)
    return out
