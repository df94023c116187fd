"""Run a trace in a child with limits, unless its answer is known already."""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from frenzy_shared.messages.trace import TraceAnswer, TraceRequest
from frenzy_shared.units import format_bytes
from frenzy_trainer.trace import cache
from frenzy_trainer.trace.refusals import check
from frenzy_trainer.trace.worker import versions

_LIMIT = "trace_limit"
_TAIL = 2000  # characters of the child's last words


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Wall-clock seconds, and bytes of memory of the child."""

    seconds: int
    memory_bytes: int


def answer(
    request: TraceRequest, limits: Limits, folder: Path | None, *, allow_code: bool
) -> TraceAnswer:
    """Return the trace, from ``folder`` when it is known there; a user's code is never cached.

    Raises:
        InvalidSpec: see ``refusals.check``.
    """
    check(request, allow_code=allow_code)
    if request.factory is not None:
        folder = None
    path = None if folder is None else cache.entry(folder, request, versions())
    known = None if path is None else cache.load(path)
    if known is not None:
        return known
    found = _run(request, limits)
    if path is not None and not found.error:
        cache.keep(path, found)
    return found


def _run(request: TraceRequest, limits: Limits) -> TraceAnswer:
    with TemporaryDirectory(prefix="frenzy-trace-") as scratch:
        file = Path(scratch) / "answer.json"
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "frenzy_trainer.trace.worker", "--answer", str(file)),
                *("--seconds", str(limits.seconds), "--memory", str(limits.memory_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _, said = child.communicate(request.encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return _too_long(limits)
        finally:
            child.kill()
            child.communicate()
        if child.returncode == 0 and file.exists():
            return TraceAnswer.decode(file.read_bytes())
        if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return _too_long(limits)
        return _died(child.returncode, said.decode(errors="replace"), limits)


def _too_long(limits: Limits) -> TraceAnswer:
    return TraceAnswer(
        error_code=_LIMIT,
        error=f"the trace took longer than {limits.seconds} s and was stopped",
        suggestions=("allow more time, or trace fewer layers",),
    )


def _died(code: int, said: str, limits: Limits) -> TraceAnswer:
    """Say why a child left no answer: the last line that it wrote, or its limit of memory."""
    lines = said[-_TAIL:].strip().splitlines()
    last = lines[-1] if lines else f"exit code {code}"
    return TraceAnswer(
        error_code="trace_failed",
        error=f"the trace died: {last[:500]}",
        suggestions=(f"its memory limit was {format_bytes(limits.memory_bytes)}",),
    )
