"""Peaks of one model, sequence length and width of weights, for micro-batches chosen once."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from frenzy_marp.core.memory.common import constants, masks
from frenzy_marp.core.memory.gradients import Gradients, Walk
from frenzy_marp.core.memory.moments import (
    Activations,
    Anatomy,
    Held,
    activations,
    held,
    loss_sizes,
    moments_of,
    points_of_loss,
)
from frenzy_marp.core.memory.profiles import saved_by_nobody_first, trained_in_embedding
from frenzy_marp.core.memory.program import Profile, block_of, ends_of
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.sizes import Bytes
from frenzy_marp.core.memory.states import States, states
from frenzy_shared.domain.model import Attention, ModelArchitecture
from frenzy_shared.domain.plan import ActivationCheckpointing, Loss, MemoryTerm, Offload


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest allocated bytes of a rank, where that is, and what it is made of."""

    allocated: int
    moment: str
    terms: tuple[MemoryTerm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What all plans of a job have in common whose weights are ``element`` bytes.

    ``bucket`` is reduce_bucket_size in elements, ``threshold`` the elements up to which ZeRO-3
    keeps a parameter whole. ``micro_batches`` are sequences, ascending; ``fused_dropout`` as in
    ``Shape``.
    """

    model: ModelArchitecture
    attention: Attention
    length: int
    element: int
    bucket: int
    threshold: int
    micro_batches: tuple[int, ...]
    fused_dropout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How a plan shares the model's states, and whether gradients accumulate.

    ``cuda``: AdamW updates many tensors at once there (foreach), and ZeRO-3 gathers one bucket
    ahead; on a CPU neither is so. ``single_step``: the run ends after one optimizer step, so that
    Adam's moments are nowhere but in it.
    """

    stage: int
    ranks: int
    accumulates: bool
    cuda: bool
    single_step: bool = False
    offload: Offload = Offload.NONE

    @property
    def gathers(self) -> bool:
        """Tell whether weights exist only while their layer runs."""
        return self.stage == 3 and (self.ranks > 1 or self.offload is Offload.PARAMETERS)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What one sharding holds: model states, and gradients at every point (see ``Held``).

    ``absent`` bytes of the states do not exist yet, except at the last point: the sizes lack them.
    """

    states: States
    rows: tuple[int, ...]
    sizes: Bytes
    absent: int


class Predictor:
    """Predict peaks of the worst rank; what several plans share is worked out once."""

    def __init__(self, workload: Workload) -> None:
        """Nothing is worked out yet."""
        self._work = workload
        self._shape = Shape(
            workload.model,
            workload.attention,
            1,
            workload.length,
            workload.element,
            fused_dropout=workload.fused_dropout,
        )
        self._sequences = np.array(workload.micro_batches, dtype=np.int64)
        self._blocks: dict[tuple[ActivationCheckpointing, bool], Profile] = {}
        self._ends: dict[tuple[bool, Loss], Profile] = {}
        self._states: dict[tuple[int, int, bool, Offload], States] = {}
        self._held: dict[Walk, Held] = {}
        self._shared: dict[Sharding, _Shared] = {}
        self._elsewhere: dict[tuple[Sharding, ActivationCheckpointing], Bytes] = {}
        self._losses: dict[tuple[ActivationCheckpointing, bool, Loss], Bytes] = {}
        self._least: dict[tuple[ActivationCheckpointing, bool, Loss], Bytes] = {}
        self._activations: dict[
            tuple[ActivationCheckpointing, bool, Loss, tuple[int, ...]], Activations
        ] = {}

    @cached_property
    def micro_batches(self) -> dict[int, int]:
        """Return the column of each micro-batch."""
        return {size: column for column, size in enumerate(self._work.micro_batches)}

    def least(
        self,
        sharding: Sharding,
        checkpointing: ActivationCheckpointing,
        loss: Loss = Loss.FULL,
    ) -> Bytes:
        """Return lower bounds of ``allocated``, ascending: what is there beside gradients."""
        found = self._states_of(sharding)
        at_loss = self._least_at_loss(checkpointing, loss, gathers=sharding.gathers)
        in_step = found.resident + found.step_gradients + found.step_temporaries
        waiting = found.resident - _absent(sharding, found)
        return np.maximum(at_loss + waiting, max(in_step, found.initialisation))

    def allocated(
        self,
        sharding: Sharding,
        checkpointing: ActivationCheckpointing,
        loss: Loss = Loss.FULL,
    ) -> list[int]:
        """Return the peak bytes of every micro-batch."""
        shared = self._shared_of(sharding)
        points = points_of_loss(self._anatomy)
        beside = self._at_loss(checkpointing, loss, gathers=sharding.gathers)
        at_loss = np.maximum.reduce(shared.sizes[points, None] + beside)
        highest = np.maximum(self._elsewhere_of(sharding, checkpointing), at_loss)
        sizes: list[int] = (highest + shared.states.resident).tolist()
        least = shared.states.initialisation
        return [max(size, least) for size in sizes]

    def peak(
        self,
        sharding: Sharding,
        checkpointing: ActivationCheckpointing,
        column: int,
        loss: Loss = Loss.FULL,
    ) -> Peak:
        """Return the peak of one micro-batch with its moment and terms."""
        shared = self._shared_of(sharding)
        beside = self._activations_of(sharding, checkpointing, loss, shared.rows)
        live = shared.sizes + beside.sizes[:, column]
        point = int(live.argmax())
        if shared.states.initialisation > shared.states.resident + int(live[point]):
            return _initialisation(shared.states)
        parts = moments_of(self._anatomy, shared.rows)
        name = next(name for name, points in parts if point < points.stop)
        return self._peak_at(name, point, shared, beside, column)

    def moments(
        self,
        sharding: Sharding,
        checkpointing: ActivationCheckpointing,
        column: int,
        loss: Loss = Loss.FULL,
    ) -> list[Peak]:
        """Return the peak of every moment of a run, in their order."""
        shared = self._shared_of(sharding)
        beside = self._activations_of(sharding, checkpointing, loss, shared.rows)
        live = shared.sizes + beside.sizes[:, column]
        found = [_initialisation(shared.states)]
        for name, points in moments_of(self._anatomy, shared.rows):
            point = points.start + int(live[points].argmax())
            found.append(self._peak_at(name, point, shared, beside, column))
        return found

    def _elsewhere_of(self, sharding: Sharding, checkpointing: ActivationCheckpointing) -> Bytes:
        """Return the highest bytes but at the loss: what ways to compute it have in common."""
        key = (sharding, checkpointing)
        found = self._elsewhere.get(key)
        if found is None:
            shared = self._shared_of(sharding)
            beside = self._activations_of(sharding, checkpointing, Loss.FULL, shared.rows)
            end = points_of_loss(self._anatomy).stop
            after = np.maximum.reduce(shared.sizes[end:, None] + beside.sizes[end:])
            found = np.maximum(after, shared.sizes[0] + beside.sizes[0])
            self._elsewhere[key] = found
        return found

    def _at_loss(
        self, checkpointing: ActivationCheckpointing, loss: Loss, *, gathers: bool
    ) -> Bytes:
        """Return the bytes beside states and gradients at the points of the loss."""
        key = (checkpointing, gathers, loss)
        found = self._losses.get(key)
        if found is None:
            found = self._losses[key] = loss_sizes(
                self._block(checkpointing, gathers=gathers),
                self._ends_of(gathers=gathers, loss=loss),
                self._anatomy,
                common=self._common(checkpointing) - self._never_saved(checkpointing),
            )
        return found

    def _least_at_loss(
        self, checkpointing: ActivationCheckpointing, loss: Loss, *, gathers: bool
    ) -> Bytes:
        """Return the least that this and every larger micro-batch takes at the loss."""
        key = (checkpointing, gathers, loss)
        found = self._least.get(key)
        if found is None:
            highest = np.maximum.reduce(self._at_loss(checkpointing, loss, gathers=gathers))
            found = self._least[key] = np.minimum.accumulate(highest[::-1])[::-1]
        return found

    def _peak_at(
        self, name: str, point: int, shared: _Shared, beside: Activations, column: int
    ) -> Peak:
        states = shared.states
        in_step = point == len(shared.sizes) - 1
        temporaries = states.step_temporaries if in_step else 0
        absent = 0 if in_step else shared.absent
        terms = _terms(
            {
                "weights": states.weights,
                "fp32 master weights": states.master,
                "Adam moments": states.moments - absent,
                "ZeRO buffers": states.buffers,
                "gradients": int(shared.sizes[point]) - temporaries + absent,
                "saved activations": int(beside.saved[point, column]),
                "working memory": int(beside.work[point, column]) + temporaries,
                "batch and constants": int(beside.common[column]),
            }
        )
        return Peak(sum(term.size_bytes for term in terms), name, terms)

    def _shared_of(self, sharding: Sharding) -> _Shared:
        found = self._shared.get(sharding)
        if found is None:
            track = self._gradients.track(
                sharding.stage,
                sharding.ranks,
                accumulates=sharding.accumulates,
                offloaded=sharding.offload is not Offload.NONE,
            )
            resident = self._states_of(sharding)
            held = self._held_on(track.walk)
            kept = int(track.walk.before[-1]) if resident.step_keeps_gradients else 0
            step = kept + resident.step_gradients + resident.step_temporaries
            sizes = held.with_step(track.after, step)
            absent = _absent(sharding, resident)
            sizes[:-1] -= absent
            found = _Shared(resident, held.rows, sizes, absent)
            self._shared[sharding] = found
        return found

    def _held_on(self, walk: Walk) -> Held:
        found = self._held.get(walk)
        if found is None:
            model = self._work.model
            vocabulary = model.vocab_size * model.hidden_size * self._shape.element
            waiting = vocabulary if model.tied_embeddings and model.adapters is None else 0
            found = self._held[walk] = held(walk, self._anatomy, waiting=waiting)
        return found

    def _activations_of(
        self,
        sharding: Sharding,
        checkpointing: ActivationCheckpointing,
        loss: Loss,
        rows: tuple[int, ...],
    ) -> Activations:
        key = (checkpointing, sharding.gathers, loss, rows)
        found = self._activations.get(key)
        if found is None:
            found = self._activations[key] = activations(
                self._block(checkpointing, gathers=sharding.gathers),
                self._ends_of(gathers=sharding.gathers, loss=loss),
                self._anatomy,
                rows,
                common=self._common(checkpointing),
                never_saved=self._never_saved(checkpointing),
                forward_only=self._hidden + self._mask,
            )
        return found

    def _block(self, checkpointing: ActivationCheckpointing, *, gathers: bool) -> Profile:
        key = (checkpointing, gathers)
        found = self._blocks.get(key)
        if found is None:
            found = self._blocks[key] = block_of(
                self._shape, checkpointing, self._sequences, gathers=gathers
            )
        return found

    def _ends_of(self, *, gathers: bool, loss: Loss = Loss.FULL) -> Profile:
        key = (gathers, loss)
        found = self._ends.get(key)
        if found is None:
            shape = replace(self._shape, loss=loss)
            found = self._ends[key] = ends_of(shape, self._sequences, gathers=gathers)
        return found

    def _states_of(self, sharding: Sharding) -> States:
        key = (sharding.stage, sharding.ranks, sharding.cuda, sharding.offload)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = states(
                self._elements,
                frozen=self._frozen,
                stage=sharding.stage,
                ranks=sharding.ranks,
                element=self._shape.element,
                bucket=self._work.bucket,
                persistence_threshold=self._work.threshold,
                cuda=sharding.cuda,
                offload=sharding.offload,
            )
        return found

    @cached_property
    def _gradients(self) -> Gradients:
        layer = self._block(ActivationCheckpointing.NONE, gathers=False).parameters
        ends, cut = self._ends_of(gathers=False).parameters, self._anatomy.in_head
        sizes = (*ends[:cut], *(layer * self._anatomy.layers), *ends[cut:])
        element = self._shape.element
        return Gradients(np.array(sizes, dtype=np.int64), element, self._work.bucket * element)

    @cached_property
    def _elements(self) -> Bytes:
        return self._gradients.sizes // self._shape.element

    @cached_property
    def _frozen(self) -> Bytes:
        """Return the elements of every weight that adapters leave as it is."""
        model = self._work.model
        if model.adapters is None:
            return np.zeros(0, dtype=np.int64)
        shape = replace(self._shape, model=replace(model, adapters=None))
        one = self._sequences[:1]
        layer = block_of(shape, ActivationCheckpointing.NONE, one, gathers=False).parameters
        sizes = ends_of(shape, one, gathers=False).parameters + layer * model.num_layers
        return np.array(sizes, dtype=np.int64) // shape.element

    def _never_saved(self, checkpointing: ActivationCheckpointing) -> Bytes:
        """Return what the first layer saves less than the others."""
        if checkpointing is ActivationCheckpointing.FULL or self._work.model.adapters is None:
            return np.zeros_like(self._sequences)
        counts = self._sequences.tolist()
        each = [saved_by_nobody_first(replace(self._shape, sequences=count)) for count in counts]
        return np.array(each, dtype=np.int64)

    @cached_property
    def _anatomy(self) -> Anatomy:
        model = self._work.model
        layer = self._block(ActivationCheckpointing.NONE, gathers=False).parameters
        in_embedding = trained_in_embedding(model)
        ends = self._ends_of(gathers=False).parameters
        return Anatomy(model.num_layers, len(layer), len(ends) - in_embedding, in_embedding)

    def _common(self, checkpointing: ActivationCheckpointing) -> Bytes:
        """Return inputs and what all layers share, from forward to the end of backward."""
        checkpointed = checkpointing is ActivationCheckpointing.FULL
        return self._constants_and_mask if checkpointed else self._constants

    @cached_property
    def _hidden(self) -> Bytes:
        return self._sequences * self._shape.activation(self._work.model.hidden_size)

    @cached_property
    def _mask(self) -> Bytes:
        return masks(self._shape, self._sequences)

    @cached_property
    def _constants(self) -> Bytes:
        return constants(self._shape, self._sequences)

    @cached_property
    def _constants_and_mask(self) -> Bytes:
        return self._constants + self._mask


def _absent(sharding: Sharding, states: States) -> int:
    """Return the bytes of states that do not exist before the optimizer step."""
    return states.moments if sharding.single_step and states.late_moments else 0


def _initialisation(states: States) -> Peak:
    size = states.initialisation
    return Peak(size, "initialisation", _terms({"model and engine while being built": size}))


def _terms(named: dict[str, int]) -> tuple[MemoryTerm, ...]:
    return tuple(MemoryTerm(name=name, size_bytes=size) for name, size in named.items() if size)
