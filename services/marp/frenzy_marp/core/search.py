"""Find, on one kind of device, the fastest plan for every number of devices.

Nothing is guessed: a branch is only left out when a bound proves that it cannot win. More
micro-steps never take less time, so an option's largest micro-batch bounds its time from below,
and of the micro-batches that fit the largest is the best. ``tests/unit/marp/test_search.py``
compares with trying everything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf

from frenzy_marp.core.candidates import Option, device_limit
from frenzy_marp.core.ladder import Demand, Ladder
from frenzy_marp.core.memory.analytical import COUNTABLE
from frenzy_marp.core.memory.estimate import DeviceTraits, room_bytes
from frenzy_marp.core.speed import Pace, pace
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.plan import Precision


@dataclass(frozen=True, slots=True)
class Choice:
    """One plan in short: a ladder's option at one of its micro-batches."""

    ladder: Ladder
    index: int
    total_s: float

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self.ladder.option.devices


@dataclass(frozen=True)
class Offer:
    """One kind of device as a job sees it. ``correction`` multiplies predicted memory."""

    demand: Demand
    kind: KindSummary
    gpu: GpuModel
    precision: Precision
    correction: float

    @cached_property
    def emulated(self) -> bool:
        """Tell whether neither a context nor an allocator surrounds the tensors."""
        return self.kind.emulated or self.gpu.emulated

    @cached_property
    def pace(self) -> Pace:
        """Return how fast the job runs on this kind."""
        demand = self.demand
        return pace(demand.setup, self.kind, self.gpu, self.precision, demand.bucket)

    def traits(self, devices: int) -> DeviceTraits:
        """Return what surrounds the allocated bytes."""
        capability = self.kind.compute_capability
        return DeviceTraits(emulated=self.emulated, compute_capability=capability, ranks=devices)

    def room(self, devices: int) -> int:
        """Return the most allocated bytes with which a plan fits."""
        return self._room_of_several if devices > 1 else self._room_of_one

    def ladders(self) -> Iterator[tuple[Ladder, ...]]:
        """Yield the options for each number of devices that the kind has, ascending."""
        limit = device_limit(self.kind, self.demand.pins)
        for devices, found in self.demand.ladders(self.precision, cuda=not self.emulated).items():
            if devices <= limit:
                yield found

    def total_s(self, option: Option, index: int) -> float:
        """Return the predicted seconds of the whole run."""
        share = self.demand.setup.global_batch_size // option.devices
        return self.pace.total_s(
            option.devices,
            option.zero_stage,
            share // option.micro_batches[index],
            recomputes=option.recomputes,
        )

    @cached_property
    def _room_of_one(self) -> int:
        return self._room(1)

    @cached_property
    def _room_of_several(self) -> int:
        return self._room(2)

    def _room(self, devices: int) -> int:
        room = room_bytes(self.kind.memory_bytes, self.traits(devices), correction=self.correction)
        return min(room, COUNTABLE)


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
        ladder.largest_fit(offer.room(ladder.option.devices)) is not None
        for ladders in offer.ladders()
        for ladder in ladders
    )


def nearest_miss(offer: Offer) -> Ladder | None:
    """Return the option whose smallest micro-batch has the lowest floor; none: no option is."""
    every = [ladder for ladders in offer.ladders() for ladder in ladders]
    return min(every, key=lambda ladder: ladder.at_least(0), default=None)


def _fastest(offer: Offer, ladders: tuple[Ladder, ...], best_s: float) -> Choice | None:
    """Return the fastest plan that takes less than ``best_s``; of equals the first."""
    found: Choice | None = None
    room = offer.room(ladders[0].option.devices)
    possible = [ladder for ladder in ladders if ladder.at_least(0) <= room]
    bounded = [(offer.total_s(ladder.option, -1), ladder) for ladder in possible]
    bounded.sort(key=lambda pair: pair[0])
    for bound_s, ladder in bounded:
        if bound_s >= best_s:
            break
        index = ladder.largest_fit(room)
        if index is None:
            continue
        total_s = offer.total_s(ladder.option, index)
        if total_s < best_s:
            found, best_s = Choice(ladder, index, total_s), total_s
    return found
