"""A job's options with the memory of each, worked out as far as some kind of device asks."""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from frenzy_marp.core.candidates import Option, divisors, losses, options
from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.host import HostNeeds
from frenzy_marp.core.memory.analytical import COUNTABLE, Floor, floor_of, workload_of
from frenzy_marp.core.memory.predictor import Peak, Predictor, Sharding
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import Loss, Offload, Precision


@dataclass(slots=True)
class Ladder:
    """One option at each of its micro-batches, smallest first.

    Peaks are worked out when asked for. A micro-batch that is a whole step, where no gradients
    accumulate, is asked for first: most often it is the one that is wanted.
    """

    option: Option
    floor: Floor
    cuda: bool
    single_step: bool
    predictor: Predictor
    columns: tuple[int, ...]  # of the predictor, for the micro-batches that any device could hold
    _bounds: dict[Loss, list[int]] = field(default_factory=dict[Loss, list[int]])
    _bound: list[int] | None = None  # whatever the loss
    _allocated: dict[tuple[bool, Loss], list[int]] = field(
        default_factory=dict[tuple[bool, Loss], list[int]]
    )
    _peaks: dict[tuple[int, Loss], Peak] = field(default_factory=dict[tuple[int, Loss], Peak])

    @property
    def least(self) -> int:
        """Return a lower bound of every peak, bytes."""
        return self.floor.at(self.option.micro_batches[0])

    def bound(self, room: int) -> int:
        """Return an index beyond which no micro-batch fits ``room`` bytes; -1: none fits."""
        if self._bound is None:
            if self.least > room or not self.columns:
                return -1
            every = [self._bounds_of(loss) for loss in self.option.losses]
            self._bound = [min(sizes) for sizes in zip(*every, strict=True)]
        return bisect_right(self._bound, room) - 1

    def largest_fit(self, room: int) -> tuple[int, Loss] | None:
        """Return the index of the largest micro-batch whose peak is at most ``room`` bytes.

        With the loss that it takes: the usual one, unless another allows more.
        """
        if self.bound(room) < 0:
            return None
        best, chosen = -1, self.option.losses[0]
        for loss in self.option.losses:
            index = self._largest_fit(room, loss, above=best)
            if index > best:
                best, chosen = index, loss
        return None if best < 0 else (best, chosen)

    def peak(self, index: int, loss: Loss) -> Peak:
        """Return the peak of a micro-batch that fits some device, with its terms."""
        key = (index, loss)
        found = self._peaks.get(key)
        if found is None:
            sharding = self._sharding(accumulates=self.option.accumulates(index))
            column = self.columns[index]
            found = self.predictor.peak(sharding, self.option.checkpointing, column, loss)
            self._peaks[key] = found
        return found

    def _largest_fit(self, room: int, loss: Loss, *, above: int) -> int:
        """Return the largest index beyond ``above`` that fits; -1 when there is none."""
        columns, last = self.columns, len(self.option.micro_batches) - 1
        possible = bisect_right(self._bounds_of(loss), room) - 1
        if possible == last > above and not self.option.accumulates(last):
            if self._peaks_of(loss, accumulates=False)[columns[last]] <= room:
                return last
            possible = last - 1
        if possible > above:
            allocated = self._peaks_of(loss, accumulates=True)
            for index in range(possible, above, -1):
                if allocated[columns[index]] <= room:
                    return index
        return -1

    def _bounds_of(self, loss: Loss) -> list[int]:
        found = self._bounds.get(loss)
        if found is None:
            sharding = self._sharding(accumulates=False)
            least = self.predictor.least(sharding, self.option.checkpointing, loss)
            found = self._bounds[loss] = least[list(self.columns)].tolist()
        return found

    def _peaks_of(self, loss: Loss, *, accumulates: bool) -> list[int]:
        key = (accumulates, loss)
        found = self._allocated.get(key)
        if found is None:
            sharding = self._sharding(accumulates=accumulates)
            found = self.predictor.allocated(sharding, self.option.checkpointing, loss)
            self._allocated[key] = found
        return found

    def _sharding(self, *, accumulates: bool) -> Sharding:
        option = self.option
        return Sharding(
            stage=option.zero_stage,
            ranks=option.devices,
            accumulates=accumulates,
            cuda=self.cuda,
            single_step=self.single_step,
            offload=option.offload,
        )


class Demand:
    """A job under one set of pins, and all its options; kinds share what they have in common."""

    def __init__(
        self, setup: TrainingSetup, pins: Pins, *, most_devices: int, most_bytes: int
    ) -> None:
        """``most_devices`` and ``most_bytes`` are what the best kinds of the cluster have."""
        self.setup = setup
        self.pins = pins
        self._most_devices = most_devices
        self._ceiling = min(most_bytes, COUNTABLE)
        self._ladders: dict[tuple[int, bool], dict[int, tuple[Ladder, ...]]] = {}
        self._predictors: dict[tuple[int, bool], Predictor] = {}
        self._hosts: dict[Precision, HostNeeds] = {}

    def ladders(self, element: int, *, cuda: bool) -> dict[int, tuple[Ladder, ...]]:
        """Return the ladders for each number of devices, ascending.

        ``element`` is the bytes of a weight: bf16 and fp16 take the same memory.
        """
        key = (element, cuda)
        found = self._ladders.get(key)
        if found is None:
            found = self._ladders[key] = {
                devices: self._rungs(choices, element, cuda=cuda)
                for devices, choices in self._options.items()
            }
        return found

    def host(self, precision: Precision) -> HostNeeds:
        """Return what the job takes beside the devices."""
        found = self._hosts.get(precision)
        if found is None:
            found = self._hosts[precision] = HostNeeds.of(self.setup, precision)
        return found

    @cached_property
    def bucket(self) -> int:
        """Return the reduction bucket in elements."""
        return bucket_elements(self.setup.model)

    @cached_property
    def _options(self) -> dict[int, tuple[Option, ...]]:
        return options(self.setup, self.pins, self._most_devices)

    def _rungs(
        self, choices: tuple[Option, ...], element: int, *, cuda: bool
    ) -> tuple[Ladder, ...]:
        predictor = self._predictor(element, cuda=cuda)
        held = predictor.micro_batches
        columns = tuple(held[size] for size in choices[0].micro_batches if size in held)
        floors = {
            stage: self._floor(element, stage=stage, ranks=choices[0].devices)
            for stage in {option.zero_stage for option in choices}
        }
        return tuple(
            Ladder(
                option,
                floors[option.zero_stage],
                cuda,
                self.setup.optimizer_steps == 1,
                predictor,
                columns,
            )
            for option in choices
        )

    def _floor(self, element: int, *, stage: int, ranks: int) -> Floor:
        setup = self.setup
        return floor_of(
            setup.model,
            setup.attention,
            setup.sequence_length,
            element=element,
            stage=stage,
            ranks=ranks,
            single_step=setup.optimizer_steps == 1,
            loss=losses(setup, self.pins)[-1],  # the one that takes less
            offload=self.pins.offload or Offload.NONE,
        )

    def _predictor(self, element: int, *, cuda: bool) -> Predictor:
        """Return a predictor for the micro-batches that any device could hold."""
        adapters = self.setup.model.adapters
        key = (element, cuda and adapters is not None and adapters.dropout > 0)
        found = self._predictors.get(key)
        if found is None:
            setup, pinned = self.setup, self.pins.micro_batch_size
            sizes = divisors(setup.global_batch_size) if pinned is None else (pinned,)
            least = self._floor(element, stage=3, ranks=self._most_devices)
            workload = workload_of(
                setup.model,
                setup.attention,
                setup.sequence_length,
                element=element,
                bucket=self.bucket,
                micro_batches=tuple(size for size in sizes if least.at(size) <= self._ceiling),
                cuda=cuda,
            )
            found = self._predictors[key] = Predictor(workload)
        return found
