"""A tape, run once for every model of one structure.

Which tensors are alive when depends on a block's operators, not on its dimensions. So the tape
runs once per structure, on a stand-in whose sizes are all different, and what is alive at every
allocation is written down as counts of named sizes. For a model the bytes are then one product of
matrices, for all micro-batches at once, exactly as its own tape would count them.

The tape compares sizes in three places (casts, repeated keys, tied weights). The stand-in answers
as a model of ordinary size would; ``is_ordinary`` tells the few tiny models for which it does
not, and those run their own tape.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np

from frenzy_marp.core.memory.profiles import BlockProfile, EndsProfile, block_profile, ends_profile
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.sizes import Bytes, fixed, names, per_sequence, rounded_sizes
from frenzy_marp.core.memory.tape import Storage, Tape, rounded
from frenzy_shared.domain.plan import ActivationCheckpointing

_Counts = Counter[int]  # of live storages, by their bytes
_UNIT: Final = 1024  # a multiple of it needs no rounding, nor does its half


@dataclass(frozen=True, slots=True)
class Profile:
    """Bytes of a block, or of a model's ends, per micro-batch (the last axis).

    ``points`` are the highest bytes of every part of backward: ``peaks``, then ``handing`` (see
    ``profiles.Backward``). ``parameters`` are exact bytes, in the order of backward.
    """

    kept: Bytes
    forward_peak: Bytes
    points: Bytes
    parameters: tuple[int, ...]


def block_of(
    shape: Shape, checkpointing: ActivationCheckpointing, micro_batches: Bytes, *, gathers: bool
) -> Profile:
    """Return ``block_profile`` for every micro-batch; ``shape`` counts one sequence."""
    if not is_ordinary(shape, int(micro_batches.min())):
        return _stacked(
            [
                _row(block_profile(one, checkpointing, gathers=gathers))
                for one in _each(shape, micro_batches)
            ]
        )
    program = _block_program(_stand_in(shape, sequences=23), checkpointing, gathers)
    return program.run(shape, micro_batches)


def ends_of(shape: Shape, micro_batches: Bytes, *, gathers: bool) -> Profile:
    """Return ``ends_profile`` for every micro-batch, loss and embedding in one sequence."""
    if not is_ordinary(shape, int(micro_batches.min())):
        return _stacked(
            [_ends_row(ends_profile(one, gathers=gathers)) for one in _each(shape, micro_batches)]
        )
    program = _ends_program(_stand_in(shape, sequences=23), gathers)
    several = program.run(shape, micro_batches)
    if shape.model.max_positions is None or micro_batches.min() > 1:
        return several
    # One sequence needs no sum over the gradients of its positions.
    single = _ends_program(_stand_in(shape, sequences=1), gathers).run(shape, micro_batches)
    alone = micro_batches == 1
    return Profile(
        np.where(alone, single.kept, several.kept),
        np.where(alone, single.forward_peak, several.forward_peak),
        np.where(alone, single.points, several.points),
        several.parameters,
    )


def is_ordinary(shape: Shape, sequences: int) -> bool:
    """Tell whether sizes that differ in the stand-in also differ here once they are rounded."""
    model, growing, constant = shape.model, per_sequence(shape), fixed(shape)
    distinct = [("query", "key")] if model.num_kv_heads < model.num_heads else []
    if shape.element < 4:
        widened = ["hidden", "logits", "scores", "query", "key"]
        widened += ["router logits", "routing weights"] if model.experts is not None else []
        distinct += [(name, f"fp32 {name}") for name in widened]
    same = any(
        rounded(growing[a] * sequences) == rounded(growing[b] * sequences) for a, b in distinct
    )
    vocabulary, positions = constant["vocabulary"], constant["positions"]
    confused = rounded(vocabulary) == rounded(constant["hidden bias"]) or (
        vocabulary != positions and rounded(vocabulary) == rounded(positions)
    )
    return not same and not (model.tied_embeddings and confused)


@dataclass(frozen=True, slots=True)
class _Program:
    """Counts of the ``used`` sizes (columns) in every state that can be a maximum (rows).

    ``starts`` are the rows where the segments begin: kept, forward, then the points of backward.
    """

    used: tuple[str, ...]
    counts: Bytes
    starts: Bytes
    parameters: tuple[str, ...]

    def run(self, shape: Shape, micro_batches: Bytes) -> Profile:
        live = self.counts @ rounded_sizes(shape, self.used, micro_batches)
        highest = np.maximum.reduceat(live, self.starts, axis=0)
        exact = fixed(shape)
        parameters = tuple(exact[name] for name in self.parameters)
        return Profile(highest[0], highest[1], highest[2:], parameters)


@dataclass
class _Recorder(Tape):
    """A tape that remembers what was alive, by size, at each of its allocations."""

    alive: _Counts = field(default_factory=_Counts)
    states: list[list[_Counts]] = field(default_factory=lambda: [[]])  # per part of a phase
    handed: list[_Counts] = field(default_factory=list[_Counts])
    forward: list[_Counts] = field(default_factory=list[_Counts])  # before the last restart

    def allocate(self, size_bytes: int) -> Storage:
        storage = Tape.allocate(self, size_bytes)
        if storage.real:
            self.alive[storage.size_bytes] += 1
            self.states[-1].append(self.alive.copy())
        return storage

    def free(self, storage: Storage) -> None:
        Tape.free(self, storage)
        if storage.holders == 0 and storage.real:
            self.alive[storage.size_bytes] -= 1

    def restart_peaks(self) -> None:
        Tape.restart_peaks(self)
        self.forward = self.states[-1]
        self.states = [[self.alive.copy()]]

    def hand_over(self, gradient: Storage) -> None:
        self.handed.append(self.alive.copy())
        Tape.hand_over(self, gradient)
        self.states.append([self.alive.copy()])


@lru_cache(maxsize=256)
def _block_program(
    stand_in: Shape,
    checkpointing: ActivationCheckpointing,
    gathers: bool,  # noqa: FBT001 - a cache key
) -> _Program:
    tapes: list[_Recorder] = []
    block_profile(stand_in, checkpointing, gathers=gathers, make_tape=_recorders(tapes))
    if checkpointing is ActivationCheckpointing.FULL:
        forward = tapes[0].states[-1]
        kept = _Counts({stand_in.activation(stand_in.model.hidden_size): 1})
    else:
        forward, kept = tapes[0].forward, tapes[0].states[0][0]
    return _compiled(stand_in, kept, forward, tapes[-1])


@lru_cache(maxsize=256)
def _ends_program(stand_in: Shape, gathers: bool) -> _Program:  # noqa: FBT001 - a cache key
    tapes: list[_Recorder] = []
    ends_profile(stand_in, gathers=gathers, make_tape=_recorders(tapes))
    [tape] = tapes
    return _compiled(stand_in, tape.states[0][0], tape.forward, tape)


def _recorders(made: list[_Recorder]) -> Callable[..., Tape]:
    def make(
        *,
        keep_saved: bool = True,
        last_save: int | None = None,
        gathers: bool = False,
        frozen: bool = False,
    ) -> Tape:
        tape = _Recorder(keep_saved=keep_saved, last_save=last_save, gathers=gathers, frozen=frozen)
        made.append(tape)
        return tape

    return make


def _compiled(
    stand_in: Shape, kept: _Counts, forward: list[_Counts], backward: _Recorder
) -> _Program:
    segments = [[kept], forward, *backward.states, *([state] for state in backward.handed)]
    known = names(stand_in)
    named = [[_named(state, known) for state in segment] for segment in segments]
    used = tuple(sorted({name for segment in named for state in segment for name in state}))
    rows = [_maxima(segment, used) for segment in named]
    lengths = [len(segment) for segment in rows]
    parameters = {size: name for name, size in fixed(stand_in).items()}
    return _Program(
        used,
        np.concatenate(rows),
        np.cumsum([0, *lengths[:-1]]),
        tuple(parameters[size] for size in backward.parameters),
    )


def _named(state: _Counts, known: dict[int, str]) -> Counter[str]:
    found = Counter[str]()
    for size, count in state.items():
        if size and count:
            found[known[size]] += count
    return found


def _maxima(states: list[Counter[str]], used: tuple[str, ...]) -> Bytes:
    """Return the states as rows, without those that another one always exceeds or equals."""
    distinct = {tuple(state[name] for name in used) for state in states}
    rows = np.array(sorted(distinct), dtype=np.int64)
    reaching = np.all(rows[None] >= rows[:, None], axis=2)
    alone: Bytes = rows[np.count_nonzero(reaching, axis=1) == 1]  # none reaches it but itself
    return alone


def _stand_in(shape: Shape, *, sequences: int) -> Shape:
    """Return a shape of the same structure in which different sizes have different bytes."""
    model, constant = shape.model, fixed(shape)
    vocabulary, length = 13 * _UNIT, 19 * _UNIT
    learned = vocabulary if constant["positions"] == constant["vocabulary"] else 17 * _UNIT
    head_dim = 7 * _UNIT
    rotated = head_dim if model.rotary_dim == model.head_dim else 5 * _UNIT
    dimensions = replace(
        model,
        hidden_size=3 * _UNIT,
        num_layers=1,
        num_heads=15,
        num_kv_heads=3 if model.num_kv_heads < model.num_heads else 15,
        head_dim=head_dim,
        intermediate_size=11 * _UNIT,
        vocab_size=vocabulary,
        max_positions=None if model.max_positions is None else learned,
        rotary_dim=rotated if model.rotary_dim else 0,
        sliding_window=length if shape.masked else None,
        experts=None if model.experts is None else replace(model.experts, count=37, per_token=31),
        adapters=None if model.adapters is None else replace(model.adapters, rank=23 * _UNIT),
    )
    return replace(shape, model=dimensions, sequences=sequences, length=length)


def _each(shape: Shape, micro_batches: Bytes) -> list[Shape]:
    return [replace(shape, sequences=int(count)) for count in micro_batches]


_Row = tuple[int, int, tuple[int, ...], tuple[int, ...]]


def _row(block: BlockProfile) -> _Row:
    backward = block.backward
    return block.kept, block.forward_peak, backward.peaks + backward.handing, backward.parameters


def _ends_row(ends: EndsProfile) -> _Row:
    # The last peak of the loss is the first one of the embedding.
    last, first = ends.last, ends.first
    peaks, handing = last.peaks[:-1] + first.peaks, last.handing + first.handing
    return ends.kept, ends.forward_peak, peaks + handing, last.parameters + first.parameters


def _stacked(rows: list[_Row]) -> Profile:
    kept, forward, points, parameters = zip(*rows, strict=True)
    return Profile(
        np.array(kept, dtype=np.int64),
        np.array(forward, dtype=np.int64),
        np.array(points, dtype=np.int64).T,
        parameters[0],
    )
