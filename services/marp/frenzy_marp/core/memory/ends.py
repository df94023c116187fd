"""The two ends of a decoder: embeddings, and final norm, vocabulary projection and loss."""

from frenzy_marp.core.memory import operators as op
from frenzy_marp.core.memory.blocks import capped, normalise
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.tape import Tape, Value
from frenzy_shared.domain.plan import Loss

_FP32 = 4
_INT64 = 8


def embed(tape: Tape, shape: Shape) -> Value:
    """Look token (and learned position) embeddings up."""
    model = shape.model
    row = model.hidden_size * shape.element
    hidden = shape.activation(model.hidden_size)
    words = op.embedding(tape, hidden, model.vocab_size * row)
    if model.structure.scales_embedding:
        words = op.replaced(tape, words, op.scaled(tape, words))
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
    model = shape.model
    vocabulary = model.vocab_size
    weight = vocabulary * model.hidden_size * shape.element
    bias = vocabulary * shape.element if model.head_bias else 0
    tied = model.tied_embeddings and not tape.frozen
    if shape.loss is Loss.CHUNKED:
        return _chunked(tape, shape, norm, (weight, bias), tied=tied)
    logits = op.linear(tape, norm, shape.activation(vocabulary), weight, bias, tied=tied)
    tape.drop(norm)
    if model.structure.scales_logits:
        logits = op.replaced(tape, logits, op.scaled(tape, logits))
    if model.structure.caps_logits:
        logits = capped(tape, logits)
    high = op.cast(tape, logits, _FP32 * shape.tokens * vocabulary)
    labels = tape.value(_INT64 * shape.tokens)
    log_probabilities = op.softmax(tape, high)
    loss = _negative_log_likelihood(tape, log_probabilities, labels)
    tape.drop(log_probabilities, labels, high, logits)
    return loss


def _chunked(
    tape: Tape, shape: Shape, x: Value, weight_bytes: tuple[int, int], *, tied: bool
) -> Value:
    model = shape.model
    labels = tape.value(_INT64 * shape.tokens)
    positions = shape.sequences * model.chunk_length(shape.length)
    logits = positions * model.vocab_size
    chunk = (positions * model.hidden_size * shape.element, logits * shape.element, _FP32 * logits)
    slope = tape.value(_FP32 * logits) if model.structure.caps_logits else None
    loss = op.chunked_loss(tape, x, chunk, weight_bytes, tied=tied)
    tape.drop(labels, x, *([slope] if slope else []))
    return loss


def _negative_log_likelihood(tape: Tape, x: Value, labels: Value) -> Value:
    saved = tape.save(labels.storage)
    out = tape.value(_FP32)
    tape.record(out, saved, lambda _: tape.give(x))
    return out
