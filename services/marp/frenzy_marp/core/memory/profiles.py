"""What one block, and what the ends of the model, hold and peak at; made from a tape."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.memory.blocks import block, normalise
from frenzy_marp.core.memory.ends import embed, head
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.tape import Tape, Value, rounded
from frenzy_shared.domain.adapters import Role
from frenzy_shared.domain.model import ModelArchitecture
from frenzy_shared.domain.plan import ActivationCheckpointing
from frenzy_shared.domain.structure import Residual

TapeFactory = Callable[..., Tape]
_FED_FIRST: Final = frozenset({Role.QUERY, Role.KEY, Role.VALUE, Role.FUSED})
_FED_BY_PARALLEL: Final = frozenset({Role.GATE, Role.UP, Role.GATE_AND_UP})


@dataclass(frozen=True, slots=True)
class Backward:
    """Peaks of a backward pass, in bytes; a gradient that was handed over is not in them.

    ``peaks[k]`` holds while ``k`` parameter gradients have been handed over, ``handing[k]`` at
    the moment the next one is. ``parameters`` are their exact sizes, in that order.
    """

    peaks: tuple[int, ...]
    handing: tuple[int, ...]
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockProfile:
    """One decoder layer: ``kept`` from forward to backward; peaks count from the layer's start.

    The layer's input is in ``forward_peak``, the gradient of its output in ``backward``.
    """

    kept: int
    forward_peak: int
    backward: Backward


@dataclass(frozen=True, slots=True)
class EndsProfile:
    """Embedding, final norm, vocabulary projection and loss.

    ``waiting`` is the tied weight's first gradient, there during every layer's backward.
    """

    kept: int
    forward_peak: int
    waiting: int
    last: Backward  # from the loss to the last layer
    first: Backward  # of the embedding


def block_profile(
    shape: Shape,
    checkpointing: ActivationCheckpointing,
    *,
    gathers: bool,
    make_tape: TapeFactory = Tape,
) -> BlockProfile:
    """Run one layer forward and backward, recomputing it when it is checkpointed.

    The first tape that is made runs the forward pass, the last one the backward pass.
    """
    hidden = shape.activation(shape.model.hidden_size)
    checkpointed = checkpointing is ActivationCheckpointing.FULL
    frozen = shape.model.adapters is not None
    tape = make_tape(keep_saved=not checkpointed, gathers=gathers, frozen=frozen)
    x = tape.value(hidden)
    y = block(tape, shape, x)
    forward_peak = tape.peaks[-1]
    if checkpointed:
        ending = tape.ending
        tape = make_tape(last_save=tape.num_saves, gathers=gathers, frozen=frozen)
        kept = tape.allocate(hidden)  # the checkpoint's hold on its input
        gradient = tape.allocate(hidden)
        tape.restart_peaks()
        tape.gather_early(ending)
        y = block(tape, shape, Value(kept))
        tape.backward(y, gradient)
        return BlockProfile(kept.size_bytes, forward_peak, _backward(tape))
    tape.drop(x, y)
    kept_bytes = tape.live
    tape.restart_peaks()
    tape.backward(y, tape.allocate(hidden))
    return BlockProfile(kept_bytes, forward_peak, _backward(tape))


def ends_profile(shape: Shape, *, gathers: bool, make_tape: TapeFactory = Tape) -> EndsProfile:
    """Run everything but the layers, as if there were none."""
    frozen = shape.model.adapters is not None
    tape = make_tape(gathers=gathers, frozen=frozen)
    x = embed(tape, shape)
    loss = head(tape, shape, x)
    kept, forward_peak = tape.live, tape.peaks[-1]
    tape.restart_peaks()
    tape.backward(loss, tape.allocate(4))
    model = shape.model
    whole = _backward(tape)
    cut = len(whole.parameters) - trained_in_embedding(model)
    waits = model.tied_embeddings and not frozen
    waiting = model.vocab_size * model.hidden_size * shape.element if waits else 0
    return EndsProfile(
        kept,
        forward_peak,
        waiting,
        Backward(_until(whole, cut), whole.handing[:cut], whole.parameters[:cut]),
        Backward(whole.peaks[cut:], whole.handing[cut:], whole.parameters[cut:]),
    )


def _until(whole: Backward, cut: int) -> tuple[int, ...]:
    """Return the peaks before parameter ``cut``; what the embedding makes is not among them."""
    if 0 < cut < len(whole.parameters):
        return (*whole.peaks[:cut], whole.handing[cut - 1])
    return whole.peaks[: cut + 1]


def trained_in_embedding(model: ModelArchitecture) -> int:
    """Return how many parameters of the embedding get gradients."""
    if model.adapters is not None:
        return 0
    return 1 if model.max_positions is None else 2


def saved_by_nobody_first(shape: Shape) -> int:
    """Return the bytes that the first layer does not save where its input needs no gradient.

    Nothing before the first adapter does: not the norms in front of it, and dropout, whose
    factors only the gradient of its input would need.
    """
    model = shape.model
    if model.adapters is None:
        return 0
    parallel = model.structure.residual is not Residual.SEQUENTIAL
    fed = _FED_FIRST | _FED_BY_PARALLEL if parallel else _FED_FIRST
    adapted = len(fed.intersection(model.adapters.roles)) if model.adapters.dropout else 0
    dropped = adapted * rounded(shape.dropped(model.hidden_size))
    return dropped + (_saved_by_norms(shape) if model.structure.pre_norms else 0)


def _saved_by_norms(shape: Shape) -> int:
    tape = Tape(frozen=True)
    x = tape.value(shape.activation(shape.model.hidden_size))
    norms = 2 if shape.model.structure.residual is Residual.PARALLEL_NORMS else 1
    made = [normalise(tape, shape, x) for _ in range(norms)]
    tape.drop(x)
    return tape.live - sum(value.size_bytes for value in made)


def _backward(tape: Tape) -> Backward:
    return Backward(tuple(tape.peaks), tuple(tape.handing), tuple(tape.parameters))
