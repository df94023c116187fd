"""A mixture of experts as transformers 5.24 computes it, written for the tape.

Follows integrations/moe.py (``grouped_mm_experts_forward``, its choice wherever torch has the
kernel) and the routers of models/{mixtral,olmoe,qwen3_moe}. Tokens are copied once for each of
their experts and sorted by expert, so sizes do not depend on which experts are chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.memory import operators as op
from frenzy_marp.core.memory.shape import FP32_BYTES, Shape
from frenzy_marp.core.memory.tape import Storage, Tape, Value
from frenzy_shared.domain.structure import Experts

_INT64: Final = 8
_COUNTER: Final = 4  # int32 offsets, fp32 counts

Activation = Callable[[Tape, Value], Value]


@dataclass(frozen=True, slots=True)
class _Routed:
    """The bytes of what is there once for every pair of a token and one of its experts."""

    pairs: int
    hidden: int
    inner: int
    weight_element: int  # of a routing weight: fp32, or the compute precision
    weighted: int  # hidden, in the wider of both precisions

    @property
    def indices(self) -> int:
        return self.pairs * _INT64


def mixture(tape: Tape, shape: Shape, x: Value, experts: Experts, activate: Activation) -> Value:
    """Route every token of ``x`` to its experts, run them, and add up what they make."""
    routed = _routed_sizes(shape, experts)
    logits, weights, indices = _router(tape, shape, experts, x)
    parameters = _parameters(shape, experts)
    gathered = tape.gather(*parameters)
    regathered: list[Storage] = []
    ids, order = tape.value(routed.indices), tape.value(routed.indices)  # sorted by expert
    positions = tape.value(routed.indices)
    chosen = _rows(
        tape, x, routed.hidden, positions, after=lambda: tape.release(_taken(regathered))
    )
    tape.drop(positions)
    share = _rows(tape, weights, routed.pairs * routed.weight_element, order)
    counted = [tape.value(size * _COUNTER) for size in (routed.pairs, experts.count, experts.count)]
    ends = counted[-1]
    up = _grouped(
        tape,
        chosen,
        2 * routed.inner,
        weight_bytes=parameters[0],
        gathered=gathered[:1],
        ends=ends,
    )
    product = _gated(tape, up, routed.inner, activate)
    tape.drop(up)
    down = _grouped(
        tape,
        product,
        routed.hidden,
        weight_bytes=parameters[1],
        gathered=gathered[1:],
        ends=ends,
    )
    tape.drop(product)
    weighted = _weighted(tape, down, share, routed)
    inverse = tape.value(routed.indices)
    tape.drop(tape.value(routed.indices))  # 0, 1, 2, ... put at their places
    ordered = op.replaced(tape, weighted, _rows(tape, weighted, routed.weighted, inverse))
    total = _summed(
        tape,
        ordered,
        routed.weighted // experts.per_token,
        before=lambda: regathered.extend(tape.gather(*parameters)),
    )
    out = op.cast(tape, total, x.size_bytes)
    if out is not total:
        tape.drop(total)
    tape.drop(ordered, inverse, down, share, chosen, ids, order, *counted)
    tape.release(gathered)
    tape.drop(logits, weights, indices)
    return out


def parameter_sizes(shape: Shape, experts: Experts) -> dict[str, int]:
    """Return the elements of a mixture's parameters, and of all experts: ZeRO-3 gathers those."""
    matrix = experts.count * shape.model.hidden_size * shape.model.intermediate_size
    return {
        "router weight": experts.count * shape.model.hidden_size,
        "experts' gate and up weight": 2 * matrix,
        "experts' down weight": matrix,
        "experts' weights": 3 * matrix,
    }


def _parameters(shape: Shape, experts: Experts) -> tuple[int, int]:
    sizes = parameter_sizes(shape, experts)
    both = sizes["experts' gate and up weight"], sizes["experts' down weight"]
    return both[0] * shape.element, both[1] * shape.element


def _routed_sizes(shape: Shape, experts: Experts) -> _Routed:
    pairs = shape.tokens * experts.per_token
    element = FP32_BYTES if experts.full_weights else shape.element
    hidden = pairs * shape.model.hidden_size
    return _Routed(
        pairs=pairs,
        hidden=hidden * shape.element,
        inner=pairs * shape.model.intermediate_size * shape.element,
        weight_element=element,
        weighted=hidden * max(element, shape.element),
    )


def _router(tape: Tape, shape: Shape, experts: Experts, x: Value) -> tuple[Value, Value, Value]:
    """Return a token's scores for all experts, the weights of those chosen, and their indices."""
    weight = parameter_sizes(shape, experts)["router weight"] * shape.element
    logits = op.linear(tape, x, shape.activation(experts.count), weight)
    high = op.cast(tape, logits, shape.tokens * experts.count * FP32_BYTES)
    likely = op.softmax(tape, high)
    if high is not logits:
        tape.drop(high)
    weights, indices = _top(tape, shape, experts, likely)
    if experts.normalises:
        weights = op.replaced(tape, weights, _normalised(tape, weights, shape.tokens * FP32_BYTES))
    if not experts.full_weights:
        low = op.cast(tape, weights, shape.activation(experts.per_token))
        if low is not weights:
            weights = op.replaced(tape, weights, low)
    tape.drop(likely)
    return logits, weights, indices


def _top(tape: Tape, shape: Shape, experts: Experts, x: Value) -> tuple[Value, Value]:
    pairs = shape.tokens * experts.per_token
    weights, indices = tape.value(pairs * FP32_BYTES), tape.value(pairs * _INT64)
    tape.record(weights, tape.save(indices.storage), lambda _: tape.give(x))
    return weights, indices


def _normalised(tape: Tape, x: Value, column_bytes: int) -> Value:
    """Divide by the row's sum, in place: what was there before is cloned for backward."""
    total = tape.value(column_bytes)
    before = tape.value(x.size_bytes)
    saved = tape.save(before.storage, total.storage)
    out = tape.view(x)
    tape.drop(before, total)

    def run(_: Storage) -> None:
        tape.give(x)
        product = tape.allocate(x.size_bytes)  # summed over the row
        tape.free(product)
        tape.give(x)

    tape.record(out, saved, run)
    return out


def _rows(
    tape: Tape,
    x: Value,
    out_bytes: int,
    positions: Value,
    *,
    after: Callable[[], None] = lambda: None,
) -> Value:
    """Take rows of ``x`` by their positions, which are saved; backward adds into zeros, copied."""
    saved = tape.save(positions.storage)
    out = tape.value(out_bytes)

    def run(_: Storage) -> None:
        zeros = tape.allocate(x.size_bytes)
        tape.give(x)
        tape.free(zeros)
        after()

    tape.record(out, saved, run)
    return out


def _grouped(
    tape: Tape,
    x: Value,
    out_bytes: int,
    *,
    weight_bytes: int,
    gathered: list[Storage],
    ends: Value,
) -> Value:
    """Multiply every expert's rows with its own matrix, all in one parameter."""
    trains = not tape.frozen
    held = gathered if trains and tape.holds_weights else []
    saved = tape.save(*[x.storage] * trains, *held, ends.storage)
    out = tape.value(out_bytes)

    def run(_: Storage) -> None:
        tape.give(x)
        if trains:
            tape.give_parameter(weight_bytes)

    tape.record(out, saved, run)
    return out


def _gated(tape: Tape, up: Value, inner_bytes: int, activate: Activation) -> Value:
    gate, plain = op.split(tape, up, (inner_bytes, inner_bytes))
    active = activate(tape, gate)
    product = op.multiply(tape, active, plain)
    tape.drop(active, gate, plain)
    return product


def _weighted(tape: Tape, x: Value, weights: Value, routed: _Routed) -> Value:
    """Multiply every row with its routing weight, in the wider precision of both.

    The engine casts the gradient after the node has run, when what a recomputation saved is gone.
    """
    saved = tape.save(x.storage, weights.storage)
    early, late = (saved, ()) if tape.last_save is not None else ((), saved)
    out = tape.value(routed.weighted)

    def run(_: Storage) -> None:
        product = tape.allocate(routed.weighted)  # summed over the row
        wide = tape.allocate(routed.weighted if routed.weighted > routed.hidden else 0)
        for storage in early:
            tape.free(storage)
        tape.give(x)
        tape.free(wide)
        tape.give(weights)
        tape.free(product)

    tape.record(out, late, run)
    return out


def _summed(tape: Tape, x: Value, out_bytes: int, *, before: Callable[[], None]) -> Value:
    """Add up the rows of every token; backward repeats the gradient for each of them."""
    out = tape.value(out_bytes)

    def run(_: Storage) -> None:
        before()
        tape.give(x)

    tape.record(out, (), run)
    return out


def _taken(storages: list[Storage]) -> list[Storage]:
    """Return what a list held, and leave it empty."""
    taken = storages[:]
    storages.clear()
    return taken
