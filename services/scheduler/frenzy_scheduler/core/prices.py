"""What it costs a job to go on with other devices, until that was measured on the job itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from frenzy_shared.domain.job import JobRecord

# Of a cold restart, what is lost when the next attempt is ready before the present one stops:
# saving and loading, but no start. Measured: benchmarks/restart.
WARM_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Medians of what was measured on jobs, in seconds; ``move_s`` None before any was."""

    launch_s: float
    save_s: float
    move_s: float | None = None

    @classmethod
    def of(cls, placed: Sequence[JobRecord], prior_s: float) -> "Prices":
        """Return the prices that the jobs which hold devices have measured."""
        launch_s = _median_s(record.launch_ms for record in placed)
        return cls(
            launch_s=prior_s if launch_s is None else launch_s,
            save_s=_median_s(record.save_ms for record in placed) or 0.0,
            move_s=_median_s(record.move_ms for record in placed),
        )

    def restart_s(self, record: JobRecord) -> float:
        """Return the price of stopping a job first and starting it then."""
        launch_s = self.launch_s if record.launch_ms is None else record.launch_ms / 1000
        save_s = self.save_s if record.save_ms is None else record.save_ms / 1000
        return launch_s + save_s

    def moving_s(self, record: JobRecord) -> float:
        """Return the price of going on where the next attempt is ready before the job stops."""
        if record.move_ms is not None:
            return record.move_ms / 1000
        cold_s = self.restart_s(record)
        return cold_s * WARM_SHARE if self.move_s is None else min(self.move_s, cold_s)


def _median_s(measured_ms: Iterable[int | None]) -> float | None:
    known = [one for one in measured_ms if one is not None]
    return median(known) / 1000 if known else None
