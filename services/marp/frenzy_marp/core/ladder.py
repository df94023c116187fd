"""A job's options with the memory of each, worked out as far as some kind of device asks."""

from dataclasses import dataclass, field
from functools import cached_property

from frenzy_marp.core.candidates import Option, divisors, options, parallelism
from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.memory.analytical import COUNTABLE, Floor, floor_of, workload_of
from frenzy_marp.core.memory.blocks import element_bytes
from frenzy_marp.core.memory.predictor import Peak, Predictor, Sharding
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import ParallelismPlan, Precision


@dataclass(slots=True)
class Ladder:
    """One option at each of its micro-batches, smallest first.

    Peaks are worked out when asked for: the largest micro-batch alone, since most often it is
    the one that is wanted, all others together.
    """

    option: Option
    floor: Floor
    cuda: bool
    predictor: Predictor
    columns: tuple[int, ...]  # of the predictor, for the micro-batches that any device could hold
    _top: int = 0
    _others: list[int] = field(default_factory=list[int])
    _peaks: dict[int, Peak] = field(default_factory=dict[int, Peak])

    def at_least(self, index: int) -> int:
        """Return a lower bound of a micro-batch's peak bytes."""
        return self.floor.at(self.option.micro_batches[index])

    def largest_fit(self, room: int) -> int | None:
        """Return the index of the largest micro-batch whose peak is at most ``room`` bytes."""
        last = len(self.option.micro_batches) - 1
        if self.at_least(0) > room:  # the many that cannot fit are told apart by their floor
            return None
        if self._may_fit(last, room) and self._top_allocated() <= room:
            return last
        for index in range(min(last, len(self.columns)) - 1, -1, -1):
            if self._may_fit(index, room) and self._others_allocated()[index] <= room:
                return index
        return None

    def peak(self, index: int) -> Peak:
        """Return the peak of a micro-batch that fits some device, with its terms."""
        found = self._peaks.get(index)
        if found is None:
            sharding = self._sharding(accumulates=index < len(self.option.micro_batches) - 1)
            found = self.predictor.peak(sharding, self.option.checkpointing, self.columns[index])
            self._peaks[index] = found
        return found

    def _may_fit(self, index: int, room: int) -> bool:
        return index < len(self.columns) and self.at_least(index) <= room

    def _top_allocated(self) -> int:
        if not self._top:
            [self._top] = self._allocated(self.columns[-1:], accumulates=False)
        return self._top

    def _others_allocated(self) -> list[int]:
        if not self._others:
            below = self.columns[: len(self.option.micro_batches) - 1]
            self._others = self._allocated(below, accumulates=True)
        return self._others

    def _allocated(self, columns: tuple[int, ...], *, accumulates: bool) -> list[int]:
        sharding = self._sharding(accumulates=accumulates)
        sizes = self.predictor.allocated(sharding, self.option.checkpointing, list(columns))
        return [int(size) for size in sizes]

    def _sharding(self, *, accumulates: bool) -> Sharding:
        return Sharding(
            stage=self.option.zero_stage,
            ranks=self.option.devices,
            accumulates=accumulates,
            cuda=self.cuda,
        )


class Demand:
    """A job under one set of pins, and all its options; kinds share what they have in common."""

    def __init__(
        self,
        setup: TrainingSetup,
        pins: Pins,
        *,
        most_devices: int,
        most_bytes: int,
    ) -> None:
        """``most_devices`` and ``most_bytes`` are what the best kinds of the cluster have."""
        self.setup = setup
        self.pins = pins
        self._most_devices = most_devices
        self._ceiling = min(most_bytes, COUNTABLE)
        self._predictors: dict[int, tuple[Predictor, dict[int, int]]] = {}
        self._ladders: dict[tuple[Precision, bool], dict[int, tuple[Ladder, ...]]] = {}

    def ladders(self, precision: Precision, *, cuda: bool) -> dict[int, tuple[Ladder, ...]]:
        """Return the ladders for each number of devices, ascending."""
        key = (precision, cuda)
        found = self._ladders.get(key)
        if found is None:
            found = self._ladders[key] = {
                devices: tuple(self._ladder(option, cuda=cuda) for option in choices)
                for devices, choices in options(
                    self.setup, self.pins, precision, self._most_devices
                ).items()
            }
        return found

    def plan(self, option: Option, index: int) -> ParallelismPlan:
        """Return the plan of an option with one of its micro-batches."""
        return parallelism(self.setup, option, option.micro_batches[index], self.bucket)

    @cached_property
    def bucket(self) -> int:
        """Return the reduction bucket in elements."""
        return bucket_elements(self.setup.model)

    def _ladder(self, option: Option, *, cuda: bool) -> Ladder:
        element = element_bytes(option.precision)
        predictor, column = self._predictor(element)
        return Ladder(
            option,
            floor_of(
                self.setup.model,
                self.setup.attention,
                self.setup.sequence_length,
                element=element,
                stage=option.zero_stage,
                ranks=option.devices,
            ),
            cuda,
            predictor,
            tuple(column[size] for size in option.micro_batches if size in column),
        )

    def _predictor(self, element: int) -> tuple[Predictor, dict[int, int]]:
        """Return a predictor, and its columns by the micro-batches that any device could hold."""
        found = self._predictors.get(element)
        if found is None:
            setup, pinned = self.setup, self.pins.micro_batch_size
            sizes = divisors(setup.global_batch_size) if pinned is None else (pinned,)
            model, attention, length = setup.model, setup.attention, setup.sequence_length
            ranks = self._most_devices
            least = floor_of(model, attention, length, element=element, stage=3, ranks=ranks)
            held = tuple(size for size in sizes if least.at(size) <= self._ceiling)
            workload = workload_of(
                model, attention, length, element=element, bucket=self.bucket, micro_batches=held
            )
            column = {size: index for index, size in enumerate(held)}
            found = self._predictors[element] = (Predictor(workload), column)
        return found
