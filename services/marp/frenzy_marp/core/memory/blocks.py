"""GPT-2 and Llama as transformers 5.24 computes them, written for the tape.

Follows models/gpt2/modeling_gpt2.py, models/llama/modeling_llama.py, integrations/
sdpa_attention.py and loss/loss_utils.py line by line, dropout 0, no cache, packed sequences
without padding. A Python variable's end is a ``drop``.
"""

from dataclasses import dataclass

from frenzy_marp.core.memory import operators as op
from frenzy_marp.core.memory.tape import Tape, Value
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture
from frenzy_shared.domain.plan import Precision

_FP32 = 4
_INT64 = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """What one micro-batch looks like to one rank. ``element`` is the bytes of a weight."""

    model: ModelArchitecture
    attention: Attention
    sequences: int
    length: int
    element: int

    @property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch."""
        return self.sequences * self.length

    def activation(self, width: int) -> int:
        """Return the bytes of ``width`` values per token in the compute precision."""
        return self.tokens * width * self.element

    @property
    def scores(self) -> int:
        """Return how many attention scores one layer has."""
        return self.sequences * self.model.num_heads * self.length * self.length


def element_bytes(precision: Precision) -> int:
    """Return the bytes of one weight or activation."""
    return _FP32 if precision is Precision.FP32 else 2


def block(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run one decoder layer; ``x`` stays in scope, the caller's variable."""
    norm = normalise(tape, shape, x)
    attended = _attention(tape, shape, norm)
    tape.drop(norm)
    middle = op.add(tape, attended, x)
    gated = shape.model.family is Family.LLAMA
    if gated:
        tape.drop(attended)  # GPT-2's block keeps the variable to its end
    norm = normalise(tape, shape, middle)
    fed = _gated_mlp(tape, shape, norm) if gated else _mlp(tape, shape, norm)
    out = op.add(tape, middle, fed)
    tape.drop(norm, fed, middle, attended)
    return out


def normalise(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run the family's normalisation."""
    width = shape.model.hidden_size
    weight = width * shape.element
    if shape.model.family is Family.LLAMA:
        return op.rms_norm(tape, x, shape.tokens, width, weight)
    return op.layer_norm(tape, x, shape.activation(1), weight)


def embed(tape: Tape, shape: Shape) -> Value:
    """Look token (and learned position) embeddings up."""
    model = shape.model
    row = model.hidden_size * shape.element
    hidden = shape.activation(model.hidden_size)
    words = op.embedding(tape, hidden, model.vocab_size * row)
    if model.max_positions is None:
        return words
    summed = shape.length * row if shape.sequences > 1 else 0
    positions = op.embedding(tape, shape.length * row, model.max_positions * row, summed)
    out = op.add(tape, words, positions)
    tape.drop(words, positions)
    return out


def head(tape: Tape, shape: Shape, x: Value) -> Value:
    """Run final norm, vocabulary projection and loss; return the loss.

    transformers upcasts the logits to fp32 and keeps them, and the low-precision ones, until
    the forward call returns: 10 bytes per logit in bf16, then 12 in backward.
    """
    norm = normalise(tape, shape, x)
    tape.drop(x)
    vocabulary = shape.model.vocab_size
    weight = vocabulary * shape.model.hidden_size * shape.element
    tied = shape.model.tied_embeddings
    logits = op.linear(tape, norm, shape.activation(vocabulary), weight, tied=tied)
    tape.drop(norm)
    high = op.cast(tape, logits, _FP32 * shape.tokens * vocabulary)
    labels = tape.value(_INT64 * shape.tokens)
    log_probabilities = op.softmax(tape, high)
    loss = _negative_log_likelihood(tape, log_probabilities, labels)
    tape.drop(log_probabilities, labels, high, logits)
    return loss


def _negative_log_likelihood(tape: Tape, x: Value, labels: Value) -> Value:
    saved = tape.save(labels.storage)
    out = tape.value(_FP32)
    tape.record(out, saved, lambda _: tape.give(x))
    return out


def _attention(tape: Tape, shape: Shape, x: Value) -> Value:
    model = shape.model
    query, key, values = _projections(tape, shape, x)
    if shape.attention is Attention.SDPA:
        statistics = _FP32 * shape.tokens * model.num_heads
        mixed = op.flash_attention(tape, query, key, values, statistics)
    else:
        mixed = _eager(tape, shape, query, key, values)
    inner = model.num_heads * model.head_dim
    weight = inner * model.hidden_size * shape.element
    bias = model.hidden_size * shape.element if model.attention_bias else 0
    out = op.linear(tape, mixed, shape.activation(model.hidden_size), weight, bias)
    tape.drop(mixed, query, key, values)
    return out


def _projections(tape: Tape, shape: Shape, x: Value) -> tuple[Value, Value, Value]:
    model = shape.model
    eager = shape.attention is Attention.EAGER
    widths = (
        model.num_heads * model.head_dim,
        model.num_kv_heads * model.head_dim,
        model.num_kv_heads * model.head_dim,
    )
    sizes = tuple(shape.activation(width) for width in widths)
    weights = [model.hidden_size * width * shape.element for width in widths]
    biases = [width * shape.element if model.attention_bias else 0 for width in widths]
    if model.family is Family.GPT2:  # one fused projection
        fused = op.linear(tape, x, sum(sizes), sum(weights), sum(biases))
        parts = op.split(tape, fused, sizes)
        tape.drop(fused)
        query, key, values = (op.transposed(tape, part) if eager else part for part in parts)
        if eager:
            tape.drop(*parts)
        return query, key, values
    projected = [
        op.linear(tape, x, *arguments) for arguments in zip(sizes, weights, biases, strict=True)
    ]
    # Fused attention returns the value's gradient in the projection's own layout.
    query, key, values = (
        op.transposed(tape, part) if eager or part is not projected[2] else part
        for part in projected
    )
    turned_query, turned_key = op.rotary(tape, query), op.rotary(tape, key)
    tape.drop(query, key, *projected[:2])
    if eager:
        tape.drop(projected[2])
    return turned_query, turned_key, values


def _eager(tape: Tape, shape: Shape, query: Value, key: Value, values: Value) -> Value:
    """Write the scores out: fp32 softmax in Llama, softmax in the compute precision in GPT-2."""
    scores_bytes = shape.scores * shape.element
    repeated = query.size_bytes
    grouped = shape.model.num_kv_heads < shape.model.num_heads
    late_values = None if grouped else values
    key_copy = op.copied(tape, key, repeated)
    value_copy = op.copied(tape, values, repeated) if late_values is None else None
    query_copy = op.copied(tape, query)
    raw = op.matmul(tape, query_copy, key_copy, scores_bytes)
    tape.drop(query_copy)
    scores = op.scaled(tape, raw)
    tape.drop(raw)
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
    if shape.model.family is Family.GPT2:
        weights = op.softmax(tape, masked)
        tape.drop(masked)
        return weights
    high = op.cast(tape, masked, shape.scores * _FP32)
    probabilities = op.softmax(tape, high)
    tape.drop(high, masked)
    weights = op.cast(tape, probabilities, shape.scores * shape.element)
    if weights is not probabilities:
        tape.drop(probabilities)
    return weights


def _gated_mlp(tape: Tape, shape: Shape, x: Value) -> Value:
    model = shape.model
    inner = shape.activation(model.intermediate_size)
    weight = model.hidden_size * model.intermediate_size * shape.element
    bias = model.intermediate_size * shape.element if model.mlp_bias else 0
    gate = op.linear(tape, x, inner, weight, bias)
    active = _activation(tape, model.activation, gate)
    tape.drop(gate)
    up = op.linear(tape, x, inner, weight, bias)
    product = op.multiply(tape, active, up)
    tape.drop(active, up)
    out_bias = model.hidden_size * shape.element if model.mlp_bias else 0
    out = op.linear(tape, product, shape.activation(model.hidden_size), weight, out_bias)
    tape.drop(product)
    return out


def _mlp(tape: Tape, shape: Shape, x: Value) -> Value:
    model = shape.model
    weight = model.hidden_size * model.intermediate_size * shape.element
    inner = op.linear(
        tape,
        x,
        shape.activation(model.intermediate_size),
        weight,
        model.intermediate_size * shape.element,
    )
    active = _activation(tape, model.activation, inner)
    tape.drop(inner)
    out = op.linear(
        tape,
        active,
        shape.activation(model.hidden_size),
        weight,
        model.hidden_size * shape.element,
    )
    tape.drop(active)
    return out


def _activation(tape: Tape, name: str, x: Value) -> Value:
    if name == "gelu_new":
        return _gelu_new(tape, x)
    return op.elementwise(tape, x, saves_output=name == "relu")


def _gelu_new(tape: Tape, x: Value) -> Value:
    """Write out 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as NewGELUActivation does."""
    half = op.scaled(tape, x)
    cubed = op.cube(tape, x)
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
