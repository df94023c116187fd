"""Find, on one kind of device, the fastest plan for every number of devices.

Nothing is guessed: a branch is only left out when a bound proves that it cannot win. More
micro-steps never take less time, so the largest micro-batch that may fit bounds an option's time,
and of the micro-batches that fit the largest is the best. ``tests/unit/marp/test_search.py``
compares with trying everything.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from frenzy_marp.core.candidates import Option, device_limit, parallelism
from frenzy_marp.core.ladder import Demand, Ladder
from frenzy_marp.core.learning import Lessons
from frenzy_marp.core.learning_errors import Correction
from frenzy_marp.core.memory.analytical import COUNTABLE
from frenzy_marp.core.memory.estimate import DeviceTraits, room_bytes
from frenzy_marp.core.memory.shape import element_bytes
from frenzy_marp.core.speed import Gang, Pace, pace
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Loss,
    Offload,
    ParallelismPlan,
    Precision,
)

# What learned corrections differ by: more than one device, ZeRO stage, checkpointing.
_PlanShape = tuple[bool, int, ActivationCheckpointing] | bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One plan in short: a ladder's option at one of its micro-batches."""

    ladder: Ladder
    index: int
    loss: Loss
    total_s: float

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self.ladder.option.devices


class Terms(NamedTuple):
    """What holds for all plans of one shape: their room in bytes, and what runs have taught."""

    room: int
    memory: Correction
    time: Correction


@dataclass(frozen=True)
class Offer:
    """One kind of device as a job sees it, with what runs on it have taught.

    ``demanded`` is the least factor on predicted memory that the job's last attempt calls for.
    """

    demand: Demand
    kind: KindSummary
    gpu: GpuModel
    precision: Precision
    lessons: Lessons
    demanded: float
    _rooms: dict[tuple[bool, float, float], int] = field(
        default_factory=dict[tuple[bool, float, float], int]
    )
    _terms: dict[_PlanShape, Terms] = field(default_factory=dict[_PlanShape, Terms])

    @property
    def element(self) -> int:
        """Return the bytes of a weight."""
        return element_bytes(self.precision)

    def plan(self, choice: Choice) -> ParallelismPlan:
        """Return a choice as a plan."""
        option = choice.ladder.option
        micro_batch = option.micro_batches[choice.index]
        bucket = self.demand.bucket
        return parallelism(option, micro_batch, self.precision, bucket, choice.loss)

    @cached_property
    def emulated(self) -> bool:
        """Tell whether neither a context nor an allocator surrounds the tensors."""
        return self.kind.emulated or self.gpu.emulated

    @cached_property
    def pace(self) -> Pace:
        """Return how fast the job runs on this kind."""
        demand = self.demand
        return pace(
            demand.setup,
            self.kind,
            self.gpu,
            self.precision,
            demand.bucket,
            offload=demand.pins.offload or Offload.NONE,
        )

    def traits(self, devices: int) -> DeviceTraits:
        """Return what surrounds the allocated bytes."""
        capability = self.kind.compute_capability
        return DeviceTraits(emulated=self.emulated, compute_capability=capability, ranks=devices)

    def terms(self, option: Option) -> Terms:
        """Return the most allocated bytes with which an option fits, and what runs have taught."""
        gang = option.devices > 1
        taught = self.lessons.any  # else only what surrounds the tensors differs
        shape = (gang, option.zero_stage, option.checkpointing) if taught else gang
        found = self._terms.get(shape)
        if found is None:
            plan = parallelism(option, option.micro_batches[0], self.precision, self.demand.bucket)
            memory, time = self.lessons.about(plan, self.kind.kind, emulated=self.emulated)
            memory = memory.at_least(self.demanded)
            found = self._terms[shape] = Terms(self._room(option.devices, memory), memory, time)
        return found

    def ladders(self) -> Iterator[tuple[Ladder, ...]]:
        """Yield the options for each number of devices that the kind has, ascending."""
        limit = device_limit(self.kind, self.gpu, self.demand.pins)
        for devices, found in self.demand.ladders(self.element, cuda=not self.emulated).items():
            if devices <= limit:
                yield found

    def _room(self, devices: int, correction: Correction) -> int:
        alike = (devices > 1, correction.factor, correction.above)  # most often nothing is learned
        found = self._rooms.get(alike)
        if found is None:
            capacity, traits = self.kind.memory_bytes, self.traits(devices)
            room = room_bytes(capacity, traits, correction=correction)
            found = self._rooms[alike] = min(room, COUNTABLE)
        return found


def front(offer: Offer) -> list[Choice]:
    """Return the fastest fitting plan of each number of devices that beats every smaller one."""
    kept: list[Choice] = []
    best_s = inf
    for ladders in offer.ladders():
        found = _fastest(offer, ladders, best_s)
        if found is not None:
            kept.append(found)
            best_s = found.total_s
    return kept


def fits_at_all(offer: Offer) -> bool:
    """Tell whether any option fits."""
    return any(
        ladder.largest_fit(offer.terms(ladder.option).room) is not None
        for ladders in offer.ladders()
        for ladder in ladders
    )


def nearest_miss(offer: Offer) -> Ladder | None:
    """Return the option whose smallest micro-batch has the lowest floor; none: no option is."""
    every = [ladder for ladders in offer.ladders() for ladder in ladders]
    return min(every, key=lambda ladder: ladder.least, default=None)


def _fastest(offer: Offer, ladders: tuple[Ladder, ...], best_s: float) -> Choice | None:
    """Return the fastest plan that takes less than ``best_s``; of equals the first."""
    gang = offer.pace.on(ladders[0].option.devices)
    bounded: list[tuple[float, int, Ladder, int, float]] = []
    for order, ladder in enumerate(ladders):
        room, _, time = offer.terms(ladder.option)
        index = ladder.bound(room)
        if index >= 0:
            bound_s = _total_s(gang, ladder.option, index, time.factor)
            bounded.append((bound_s, order, ladder, room, time.factor))
    bounded.sort()
    found: Choice | None = None
    for bound_s, _, ladder, room, slowness in bounded:
        if bound_s >= best_s:
            break
        fitting = ladder.largest_fit(room)
        if fitting is None:
            continue
        index, loss = fitting
        total_s = _total_s(gang, ladder.option, index, slowness)
        if total_s < best_s:
            found, best_s = Choice(ladder, index, loss, total_s), total_s
    return found


def _total_s(gang: Gang, option: Option, index: int, slowness: float) -> float:
    micro_steps = option.share // option.micro_batches[index]
    return gang.total_s(
        option.zero_stage, micro_steps, recomputes=option.recomputes, slowness=slowness
    )
