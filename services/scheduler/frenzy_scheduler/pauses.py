"""How long jobs wait between attempts, whatever happens to the wall clock meanwhile.

Records say by the wall clock when a job may start again. A clock that is put right by an hour must
neither end that pause nor make it an hour longer, so what is left of it is read off the wall clock
once, when this replica sees it first, and measured from then on by a clock that does not jump.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord

_SAME_MS: Final = 1000  # two clocks that drift apart; the difference is not worth telling


@dataclass(kw_only=True)
class Pauses:
    """The pauses of the jobs that wait. None is longer than ``longest_s``: a clock was wrong."""

    clock: Clock
    longest_s: float
    _ends: dict[JobId, tuple[int, float]] = field(default_factory=dict)

    def not_before_ms(self, record: JobRecord) -> int:
        """Return when a job may start again, by the wall clock as it stands now; 0: at any time."""
        due_ms = record.not_before_ms
        if not due_ms:
            return 0
        now_ms, now = self.clock.now_ms(), self.clock.monotonic()
        seen, end = self._ends.get(record.id, (0, 0.0))
        if seen != due_ms:
            end = now + min((due_ms - now_ms) / 1000, self.longest_s)
            self._ends[record.id] = due_ms, end
        measured_ms = now_ms + round((end - now) * 1000)
        return due_ms if abs(measured_ms - due_ms) <= _SAME_MS else measured_ms

    def keep(self, waiting: Iterable[JobId]) -> None:
        """Forget the jobs that no longer wait."""
        known = set(waiting)
        self._ends = {job: end for job, end in self._ends.items() if job in known}
