"""Follow a rank's report file; what was told once is not told again after an agent restart."""

from pathlib import Path
from typing import Final

from pydantic import ValidationError

from frenzy_orchestrator.core.exits import RankReport
from frenzy_orchestrator.core.reports import Checkpoint, Step, fold, parse
from frenzy_orchestrator.shim.files import write_atomically
from frenzy_shared.messages.base import Wire

_READ_BYTES: Final = 256 * 1024
_LINE_LIMIT_BYTES: Final = 64 * 1024


class _State(Wire):
    offset: int = 0
    report: RankReport = RankReport()


class RankReports:
    """The reports of one rank."""

    def __init__(self, folder: Path) -> None:
        """Continue where an earlier agent stopped."""
        self._path = folder / "report.jsonl"
        self._file = folder / "reported.json"
        self._saved = self._load()
        self._read = self._saved

    @property
    def report(self) -> RankReport:
        """Return what is known about the rank so far."""
        return self._read.report

    def read(self, *, at_end: bool) -> tuple[list[Step | Checkpoint], bool]:
        """Return what is new, and whether there may be more; call ``save`` once it was told."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read.offset)
                chunk = file.read(_READ_BYTES)
        except FileNotFoundError:
            return [], False
        more = len(chunk) == _READ_BYTES
        end = chunk.rfind(b"\n") + 1
        if not end and (more or at_end):
            end = len(chunk)  # no line is that long; or its writer died in the middle of it
        told: list[Step | Checkpoint] = []
        report = self._read.report
        for line in chunk[:end].splitlines():
            entry = parse(line) if len(line) <= _LINE_LIMIT_BYTES else None
            if entry is not None:
                report, new = fold(report, entry)
                told.extend([new] if new is not None else [])
        self._read = _State(offset=self._read.offset + end, report=report)
        return told, more

    def save(self) -> None:
        """Remember that everything read so far was told."""
        if self._read is not self._saved and self._read != self._saved:
            write_atomically(self._file, self._read.encode(), durable=False)
        self._saved = self._read

    def rewind(self) -> None:
        """Forget what was read since ``save``: it could not be told."""
        self._read = self._saved

    def _load(self) -> _State:
        try:
            return _State.decode(self._file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return _State()
