"""Keeps the last cycles of this replica: a few in memory, more in a folder if one is set."""

import asyncio
import base64
import gzip
import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frenzy_scheduler.core.decisions import Decision
from frenzy_scheduler.core.question import Question
from frenzy_scheduler.recording import Cycle, write
from frenzy_shared.messages.v1 import RecordReply

log = logging.getLogger(__name__)

_IN_MEMORY: Final = 8
_MOST_BYTES: Final = 900_000  # of one message on the bus
_PREFIX: Final = "cycle-"


@dataclass(kw_only=True)
class Recorder:
    """Remembers cycles. ``folder`` None: in memory only; else the last ``keep`` are files there."""

    folder: Path | None
    keep: int
    _last: deque[tuple[Question, Sequence[Decision]]] = field(
        default_factory=lambda: deque(maxlen=_IN_MEMORY)
    )
    _failed: bool = False

    async def note(self, question: Question, decisions: Sequence[Decision]) -> None:
        """Remember a cycle that was decided just now."""
        self._last.append((question, decisions))
        if self.folder is not None:
            await asyncio.to_thread(self._file, self.folder, question, decisions)

    @property
    def looks_ahead(self) -> bool:
        """Tell whether cycles must be given the running jobs too, whatever the policy looks at."""
        return self.folder is not None

    async def recording(self, cycles: int, now: Question) -> RecordReply:
        """Return what the cycle would decide ``now``, and before it the last ones that were run."""
        decisions = await asyncio.to_thread(now.answer)
        last = [*self._last, (now, decisions)][-cycles:]
        packed = await asyncio.to_thread(_packed, last)
        if len(packed) > _MOST_BYTES:
            size = f"{len(last)} cycles are {len(packed)} bytes, a message has {_MOST_BYTES}"
            return RecordReply(
                error=f"{size}: ask for fewer, or let the scheduler write them itself: "
                "FRENZY_RECORD_CYCLES=<folder>"
            )
        return RecordReply(recording=packed.decode())

    def _file(self, folder: Path, question: Question, decisions: Sequence[Decision]) -> None:
        """Write a cycle, remove the oldest files beyond ``keep``; a full disk stops nothing."""
        data = json.dumps(write([Cycle.of(question, decisions)]))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{_PREFIX}{question.now_ms}.json"
            aside = path.with_suffix(".part")
            aside.write_text(data, encoding="utf-8")
            aside.replace(path)
            for old in sorted(folder.glob(f"{_PREFIX}*.json"))[: -self.keep]:
                old.unlink(missing_ok=True)
        except OSError as error:
            if not self._failed:
                log.warning("cycles are not recorded in %s: %s", folder, error)
            self._failed = True
        else:
            self._failed = False


def _packed(last: Sequence[tuple[Question, Sequence[Decision]]]) -> bytes:
    data = write([Cycle.of(question, decisions) for question, decisions in last])
    return base64.b64encode(gzip.compress(json.dumps(data).encode(), mtime=0))
