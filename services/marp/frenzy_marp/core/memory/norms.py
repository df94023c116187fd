"""Normalisations, as torch and transformers compute them, written for the tape."""

from frenzy_marp.core.memory.operators import cast, square
from frenzy_marp.core.memory.tape import Storage, Tape, Value
from frenzy_shared.domain.structure import Norm


def layer_norm(tape: Tape, x: Value, statistics_bytes: int, weight_bytes: int) -> Value:
    """Apply torch's LayerNorm: saves its input, mean and reciprocal deviation."""
    saved_input = tape.save(x.storage)
    out = tape.value(x.size_bytes)
    mean, deviation = tape.value(statistics_bytes), tape.value(statistics_bytes)
    saved = saved_input + tape.save(mean.storage, deviation.storage)
    tape.drop(mean, deviation)

    def run(_: Storage) -> None:
        tape.give(x)
        if not tape.frozen:
            tape.give_parameter(weight_bytes)
            tape.give_parameter(weight_bytes)

    tape.record(out, saved, run)
    return out


def plain_layer_norm(tape: Tape, x: Value, rows: int, width: int) -> Value:
    """Apply OlmoLayerNorm: in fp32, without weights."""
    high = cast(tape, x, 4 * rows * width)
    saved_input = tape.save(high.storage)
    normal = tape.value(high.size_bytes)
    mean, deviation = tape.value(4 * rows), tape.value(4 * rows)
    saved = saved_input + tape.save(mean.storage, deviation.storage)
    tape.drop(mean, deviation)
    tape.record(normal, saved, lambda _: tape.give(high))
    if high is not x:
        tape.drop(high)
    out = cast(tape, normal, x.size_bytes)
    if out is not normal:
        tape.drop(normal)
    return out


def rms_norm(
    tape: Tape, x: Value, rows: int, width: int, weight_bytes: int, *, kind: Norm = Norm.RMS
) -> Value:
    """Apply an unfused RMSNorm: fp32 copy, square, mean, reciprocal root, two products.

    ``rows`` of ``width`` values are normalised; ``kind`` says how the weight is applied.
    """
    full, column = 4 * rows * width, 4 * rows
    high = cast(tape, x, full)
    squares = square(tape, high)
    variance = _row_mean(tape, squares, column)
    tape.drop(squares)
    scale = _reciprocal_root(tape, variance, column)
    if kind is Norm.RMS_SHIFTED:
        tape.drop(variance)
    normal = _multiply_rows(tape, high, scale)
    if high is not x:
        tape.drop(high)
    tape.drop(scale)
    if kind is Norm.RMS:
        low = cast(tape, normal, x.size_bytes)
        out = _weighted(tape, low, weight_bytes)
    else:
        low = normal
        product = _weighted(
            tape, normal, weight_bytes, row_bytes=4 * width, shifts=kind is Norm.RMS_SHIFTED
        )
        out = cast(tape, product, x.size_bytes)
        if out is not product:
            tape.drop(product)
    tape.drop(normal, low, variance)
    return out


def _row_mean(tape: Tape, x: Value, column_bytes: int) -> Value:
    out = tape.value(column_bytes)
    tape.record(out, (), lambda _: tape.give(x))
    return out


def _reciprocal_root(tape: Tape, x: Value, column_bytes: int) -> Value:
    shifted_by_epsilon = tape.value(column_bytes)
    out = tape.value(column_bytes)
    saved = tape.save(out.storage)
    tape.drop(shifted_by_epsilon)

    def run(_: Storage) -> None:
        cubed, halved = tape.allocate(column_bytes), tape.allocate(column_bytes)
        tape.give(x)
        tape.free(cubed)
        tape.free(halved)

    tape.record(out, saved, run)
    return out


def _multiply_rows(tape: Tape, x: Value, scale: Value) -> Value:
    saved = tape.save(x.storage, scale.storage)
    out = tape.value(x.size_bytes)

    def run(_: Storage) -> None:
        tape.give(x)
        product = tape.allocate(x.size_bytes)  # summed over the row
        tape.give(scale)
        tape.free(product)

    tape.record(out, saved, run)
    return out


def _weighted(
    tape: Tape, x: Value, weight_bytes: int, *, row_bytes: int = 0, shifts: bool = False
) -> Value:
    """Multiply every row by a weight, in the precision of ``x``.

    ``row_bytes`` is the weight in fp32. Where it ``shifts`` there is a copy of it, and 1 + it.
    """
    saved = () if tape.frozen else tape.save(x.storage)
    copies = [tape.value(row_bytes)] if shifts and row_bytes != weight_bytes else []
    if shifts:
        one_more = tape.value(row_bytes)
        saved += tape.save(one_more.storage)
        copies.append(one_more)
    out = tape.value(x.size_bytes)
    tape.drop(*copies)

    def run(_: Storage) -> None:
        if tape.frozen:
            tape.give(x)
            return
        product = tape.allocate(x.size_bytes)  # summed over the tokens
        tape.give(x)
        high = tape.allocate(row_bytes) if row_bytes > weight_bytes else None
        tape.give_parameter(weight_bytes)
        tape.free(product)
        if high is not None:
            tape.free(high)

    tape.record(out, saved, run)
    return out
