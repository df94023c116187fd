"""Ship a rank's output as numbered lines: each exactly once, over crashes of the agent.

The batch and the offsets after it are written down before the batch is published. After a crash
the same batch goes out again under the same message id, and the stream drops it if it has it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from frenzy_orchestrator.core.lines import Cut, cut
from frenzy_orchestrator.shim.files import write_atomically
from frenzy_shared.bus.port import Bus
from frenzy_shared.messages import subjects
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.v1 import LogBatch, LogLine
from frenzy_shared.units import format_bytes

_READ_BYTES: Final = 32 * 1024  # per output and batch: 64 KiB together
_MAX_LINES: Final = 1000  # empty lines cost more as JSON than their bytes say
_LINE_COST_BYTES: Final = 64  # what a line costs besides its text, for the quota

Output = Literal["stdout", "stderr"]


class _State(Wire):
    """What is shipped: offsets after ``batch``, which may or may not be stored yet."""

    stdout: int = 0
    stderr: int = 0
    next_number: int = 1
    cost: int = 0
    truncated: bool = False
    batch: LogBatch | None = None


class RankLog:
    """The output of one rank on its way to the stream."""

    def __init__(
        self,
        *,
        folder: Path,
        project: str,
        job: str,
        attempt: int,
        rank: int,
        node: str,
        quota_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        """Continue where an earlier agent stopped."""
        self._folder = folder
        self._project = project
        self._identity = {"job": job, "attempt": attempt, "rank": rank, "node": node}
        self._quota_bytes = quota_bytes
        self._now_ms = now_ms
        self._file = folder / "shipped.json"
        self._state = self._load()
        self._unstored = self._state.batch

    @property
    def over_quota(self) -> bool:
        """Tell whether the rank has written more than it may."""
        written = sum(_size(self._folder / f"{name}.log") for name in ("stdout", "stderr"))
        return self._state.truncated or written > self._quota_bytes

    @property
    def lines(self) -> int:
        """Return how many lines were shipped or are about to be."""
        return self._state.next_number - 1

    async def ship(self, bus: Bus, *, at_end: bool) -> bool:
        """Publish one batch; tell whether there was one. ``at_end``: nobody writes any more.

        Raises:
            Unavailable: the batch will be tried again by the next call.
        """
        if self._unstored is None:
            self._unstored = self._next_batch(at_end=at_end)
        if self._unstored is None:
            return False
        batch = self._unstored
        await bus.publish(
            subjects.log(self._project, batch.job, batch.attempt, batch.rank),
            batch.encode(),
            message_id=f"{batch.job}:{batch.attempt}:{batch.rank}:{batch.lines[0].number}",
        )
        self._unstored = None
        return True

    def trim(self) -> None:
        """Cut the files of a rank that is gone down to its quota: a flood must not stay."""
        for name in ("stdout", "stderr"):
            path = self._folder / f"{name}.log"
            if _size(path) > self._quota_bytes:
                os.truncate(path, self._quota_bytes)

    def _next_batch(self, *, at_end: bool) -> LogBatch | None:
        if self._state.truncated:
            return None
        out = _cut_from(self._folder / "stdout.log", self._state.stdout, at_end=at_end)
        err = _cut_from(self._folder / "stderr.log", self._state.stderr, at_end=at_end)
        if not out.consumed and not err.consumed:
            return None
        cost = self._state.cost + out.consumed + err.consumed
        cost += _LINE_COST_BYTES * (len(out.texts) + len(err.texts))
        lines = [*self._lines(out, "stdout"), *self._lines(err, "stderr", after=len(out.texts))]
        truncated = cost > self._quota_bytes
        if truncated:
            lines.append(self._last_line(len(lines)))
        batch = LogBatch.model_validate({**self._identity, "lines": lines})
        self._state = _State(
            stdout=self._state.stdout + out.consumed,
            stderr=self._state.stderr + err.consumed,
            next_number=self._state.next_number + len(lines),
            cost=cost,
            truncated=truncated,
            batch=batch,
        )
        # Not fsynced: after power loss the ranks are gone, and a crash of the agent needs none.
        write_atomically(self._file, self._state.encode(), durable=False)
        return batch

    def _lines(self, made: Cut, output: Output, after: int = 0) -> list[LogLine]:
        first = self._state.next_number + after
        return [
            LogLine(number=first + index, time_ms=self._now_ms(), output=output, text=text)
            for index, text in enumerate(made.texts)
        ]

    def _last_line(self, before: int) -> LogLine:
        return LogLine(
            number=self._state.next_number + before,
            time_ms=self._now_ms(),
            output="stderr",
            text=(
                f"[frenzy] this rank wrote more than {format_bytes(self._quota_bytes)} of output; "
                "the rest is not shown"
            ),
        )

    def _load(self) -> _State:
        try:
            return _State.decode(self._file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return _State()


def _cut_from(path: Path, offset: int, *, at_end: bool) -> Cut:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            chunk = file.read(_READ_BYTES)
            ends_here = at_end and offset + len(chunk) >= os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return Cut((), 0)
    return cut(chunk, at_end=ends_here, max_lines=_MAX_LINES // 2)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
