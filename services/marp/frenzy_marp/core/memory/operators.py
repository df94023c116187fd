"""The operators that blocks are written in: what each makes, saves, and does backward.

Sources: torch/csrc/autograd (derivatives.yaml), transformers 5.24 modeling code. Sizes are bytes.
Where torch's order matters for the peak it is kept: see each function.
"""

from collections.abc import Callable
from functools import partial

from frenzy_marp.core.memory.tape import Storage, Tape, Value, rounded


def replaced(tape: Tape, old: Value, new: Value) -> Value:
    """Let a Python variable go on with another tensor."""
    tape.drop(old)
    return new


def elementwise(tape: Tape, x: Value, *, saves_output: bool = False) -> Value:
    """Apply a fused activation (silu, gelu, relu, tanh): one output, one backward temporary."""
    if saves_output:
        out = tape.value(x.size_bytes)
        saved = tape.save(out.storage)
    else:
        saved = tape.save(x.storage)
        out = tape.value(x.size_bytes)
    tape.record(out, saved, lambda _: tape.give(x))
    return out


def scaled(tape: Tape, x: Value) -> Value:
    """Multiply by a constant that needs no gradient: nothing of ``x`` is saved."""
    return relaid(tape, x)


def shifted(tape: Tape, x: Value) -> Value:
    """Add a constant: the gradient passes through without a copy."""
    out = tape.value(x.size_bytes)
    tape.record(out, (), partial(tape.share, x))
    return out


def add(tape: Tape, x: Value, y: Value) -> Value:
    """Add two tensors; both receive the very same gradient."""
    out = tape.value(x.size_bytes)

    def run(gradient: Storage) -> None:
        tape.share(x, gradient)
        tape.share(y, gradient)

    tape.record(out, (), run)
    return out


def multiply(tape: Tape, x: Value, y: Value) -> Value:
    """Multiply two tensors of one shape that both need gradients."""
    saved = tape.save(x.storage, y.storage)
    out = tape.value(x.size_bytes)

    def run(_: Storage) -> None:
        tape.give(x)
        tape.give(y)

    tape.record(out, saved, run)
    return out


def cast(tape: Tape, x: Value, size_bytes: int) -> Value:
    """Convert to another dtype of ``size_bytes``; converting to the same dtype is no operator."""
    if rounded(size_bytes) == x.size_bytes:
        return x
    out = tape.value(size_bytes)
    tape.record(out, (), lambda _: tape.give(x))
    return out


def copied(tape: Tape, x: Value, size_bytes: int | None = None) -> Value:
    """Make a contiguous copy, of ``size_bytes`` when it repeats ``x``.

    Backward views the gradient when the sizes agree, and sums it when the copy repeated ``x``.
    """
    out = tape.value(x.size_bytes if size_bytes is None else size_bytes)

    def run(gradient: Storage) -> None:
        if out.size_bytes == x.size_bytes:
            tape.share(x, gradient)
        else:
            tape.give(x)

    tape.record(out, (), run)
    return out


def relaid(tape: Tape, x: Value) -> Value:
    """Copy ``x`` into another layout; backward copies the gradient back."""
    out = tape.value(x.size_bytes)
    tape.record(out, (), lambda _: tape.give(x))
    return out


def transposed(tape: Tape, x: Value) -> Value:
    """View ``x`` in another layout; backward has to make the gradient contiguous again."""
    out = tape.view(x)
    tape.record(out, (), lambda _: tape.give(x))
    return out


def linear(
    tape: Tape,
    x: Value,
    out_bytes: int,
    weight_bytes: int,
    bias_bytes: int = 0,
    *,
    tied: bool = False,
    trains: bool | None = None,
) -> Value:
    """Apply a dense layer.

    Without a bias (mm) the weight's gradient comes first, with one (addmm) the input's does; the
    bias is handed over before the weight, whose gradient has a transposition to pass.
    The gradient of a ``tied`` weight waits for its other half. A weight that does not train
    (``None``: as the tape says) needs no input saved, but ZeRO-3's own layer saves all the same
    (LinearFunctionForZeroStage3, zero/linear.py).
    """
    trains = not tape.frozen if trains is None else trains
    sizes = tuple(size for size in (weight_bytes, bias_bytes) if size)
    num_held = len(sizes) if trains and tape.holds_weights else 0
    num_inputs = 1 if trains or tape.gathers else 0
    early = tape.take_early(num_inputs + num_held)
    weights = tape.gather(*sizes) if early is None else early
    saved = tape.save(*[x.storage] * num_inputs, *weights[:num_held])
    tape.ending = sizes
    out = tape.value(out_bytes)
    if early is None:
        tape.release(weights)

    def run(_: Storage) -> None:
        weights = tape.gather(*sizes) if early is None else early
        if not trains:
            tape.give(x)
        elif bias_bytes:
            tape.give(x)
            weight, bias = tape.allocate(weight_bytes), tape.allocate(bias_bytes)
            tape.give_parameter(bias_bytes, made=bias)
            tape.give_parameter(weight_bytes, tied=tied, made=weight)
            tape.free(weight)
            tape.free(bias)
        else:
            tape.give_parameter(weight_bytes, tied=tied)
            tape.give(x)
        tape.release(weights)

    tape.record(out, saved, run)
    return out


def embedding(tape: Tape, out_bytes: int, weight_bytes: int, gradient_bytes: int = 0) -> Value:
    """Look rows of a table up. Its gradient is as large as the table.

    ``gradient_bytes`` is what the incoming gradient is first summed to, for rows that every
    sequence shares (positions); 0 when it is used as it is.
    """
    weights = tape.gather(weight_bytes)
    out = tape.value(out_bytes)
    tape.release(weights)
    if tape.frozen:
        return out

    def run(_: Storage) -> None:
        weights = tape.gather(weight_bytes)
        summed = tape.allocate(gradient_bytes)
        tape.give_parameter(weight_bytes)
        tape.free(summed)
        tape.release(weights)

    tape.record(out, (), run)
    return out


def dropout(tape: Tape, x: Value, factors_bytes: int) -> Value:
    """Set a share of ``x`` to zero: factors, or which values stay, are saved."""
    factors = tape.value(factors_bytes)
    saved = tape.save(factors.storage)
    out = tape.value(x.size_bytes)
    tape.drop(factors)
    tape.record(out, saved, lambda _: tape.give(x))
    return out


def part(tape: Tape, x: Value, size_bytes: int) -> Value:
    """View a slice of ``x``; its gradient is as large as all of ``x``."""
    out = tape.view(x, size_bytes)
    tape.record(out, (), lambda _: tape.give(x))
    return out


def joined(tape: Tape, x: Value, y: Value, size_bytes: int) -> Value:
    """Concatenate; backward hands out views of the gradient."""
    out = tape.value(size_bytes)

    def run(gradient: Storage) -> None:
        tape.share(x, gradient)
        tape.share(y, gradient)

    tape.record(out, (), run)
    return out


def joined_rotary(tape: Tape, x: Value, rotated_bytes: int, table_bytes: int = 0) -> Value:
    """Apply rotary embedding to the first channels of every head, and join them to the rest.

    ``table_bytes``: as in ``rotary``.
    """
    first, rest = part(tape, x, rotated_bytes), part(tape, x, x.size_bytes - rotated_bytes)
    turned = rotary(tape, first, table_bytes)
    out = joined(tape, turned, rest, x.size_bytes)
    tape.drop(first, rest, turned)
    return out


def rotary(tape: Tape, x: Value, table_bytes: int = 0) -> Value:
    """Apply rotary embedding: x cos + rotate_half(x) sin; cos and sin need no gradient.

    ``table_bytes`` are saved for each of cos and sin where every call makes its own.
    """
    tables = [tape.value(table_bytes) for _ in range(2)] if table_bytes else []
    saved = tape.save(*(table.storage for table in tables))
    direct = scaled(tape, x)
    half = tape.value(x.size_bytes // 2)
    rotated = tape.value(x.size_bytes)
    tape.drop(half)

    def unrotate(_: Storage) -> None:
        negative = tape.allocate(x.size_bytes // 2)
        tape.give(x)
        tape.free(negative)

    # Two slices of x meet in the concatenation; each has its own full-size gradient.
    tape.record(rotated, saved, _twice(tape, x, unrotate))
    turned = scaled(tape, rotated)
    tape.drop(rotated)
    out = add(tape, direct, turned)
    tape.drop(direct, turned, *tables)
    return out


def chunked_loss(
    tape: Tape, x: Value, chunk: tuple[int, int, int], weight_bytes: tuple[int, int], *, tied: bool
) -> Value:
    """Project to the vocabulary and take the loss, some positions at a time.

    ``chunk`` has the bytes of one chunk's hidden states, logits and fp32 logits, ``weight_bytes``
    those of the projection and its bias. Gradients are made in forward (trainer, ``chunked.py``).
    """
    rows_bytes, low_bytes, high_bytes = chunk
    sizes = [] if tape.frozen else [size for size in weight_bytes if size]
    weights = tape.gather(*weight_bytes)
    towards_x = tape.value(x.size_bytes)
    made = [tape.value(size) for size in sizes]
    rows, low = tape.value(rows_bytes), tape.value(low_bytes)
    narrow = low_bytes < high_bytes
    if narrow:
        high = tape.value(high_bytes)
        tape.drop(low)
    else:
        high = low
    probabilities = tape.value(high_bytes)
    tape.drop(high)
    if narrow:
        gradient = tape.value(low_bytes)
        tape.drop(probabilities)
    else:
        gradient = probabilities
    back = tape.value(rows_bytes)
    tape.drop(back, gradient, rows)
    tape.release(weights)
    saved = tape.save(towards_x.storage, *(value.storage for value in made))
    out = tape.value(4)
    tape.drop(towards_x, *made)

    def run(_: Storage) -> None:
        weights = tape.gather(*weight_bytes)
        tape.share(x, towards_x.storage)
        for index, (size, value) in enumerate(zip(sizes, made, strict=True)):
            tape.give_parameter(size, tied=tied and index == 0, made=value.storage)
        tape.release(weights)

    tape.record(out, saved, run)
    return out


def split(tape: Tape, x: Value, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    """View ``x`` as parts; backward concatenates their gradients once all are there."""
    waiting: list[Storage] = []

    def run(gradient: Storage) -> None:
        gradient.holders += 1
        waiting.append(gradient)
        if len(waiting) == len(sizes):
            tape.give(x)
            for part in waiting:
                tape.free(part)

    parts = tuple(tape.view(x, size) for size in sizes)
    for part in parts:
        tape.record(part, (), run)
    return parts


def flash_attention(
    tape: Tape,
    query: Value,
    key: Value,
    values: Value,
    statistics_bytes: int,
    *,
    mask_bytes: int = 0,
) -> Value:
    """Apply torch's fused attention.

    It saves its inputs, its output and the row statistics (log-sum-exp, fp32). A mask is first
    made a tensor of the compute precision.
    """
    mask = [tape.value(mask_bytes)] if mask_bytes else []
    inputs = (query, key, values, *mask)
    saved_inputs = tape.save(*(value.storage for value in inputs))
    out = tape.value(query.size_bytes)
    statistics = tape.value(statistics_bytes)
    saved = saved_inputs + tape.save(out.storage, statistics.storage)
    tape.drop(statistics, *mask)

    def run(_: Storage) -> None:
        tape.give(query)
        tape.give(key)
        tape.give(values)

    tape.record(out, saved, run)
    return out


def softmax(tape: Tape, x: Value) -> Value:
    """Apply softmax: saves its output."""
    return elementwise(tape, x, saves_output=True)


def matmul(tape: Tape, x: Value, y: Value, out_bytes: int) -> Value:
    """Multiply two batches of matrices that both need gradients."""
    saved = tape.save(x.storage, y.storage)
    out = tape.value(out_bytes)

    def run(_: Storage) -> None:
        tape.give(x)
        tape.give(y)

    tape.record(out, saved, run)
    return out


def square(tape: Tape, x: Value) -> Value:
    """Raise to a power: pow saves and makes the same, whatever the exponent."""
    saved = tape.save(x.storage)
    out = tape.value(x.size_bytes)

    def run(_: Storage) -> None:  # g * (2 * x ** 1), each a new tensor
        power, doubled = tape.allocate(x.size_bytes), tape.allocate(x.size_bytes)
        tape.give(x)
        tape.free(power)
        tape.free(doubled)

    tape.record(out, saved, run)
    return out


def _twice(tape: Tape, x: Value, first: Callable[[Storage], None]) -> Callable[[Storage], None]:
    def run(gradient: Storage) -> None:
        first(gradient)
        tape.give(x)

    return run
