"""What a user's own training script may call: ``import frenzy_trainer as ft``.

Everything also works outside Frenzy, where there is no plan and reports go nowhere, so a script
that calls it still runs by hand. Importing this module does not import torch.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from frenzy_trainer.environment import read_json
from frenzy_trainer.folders import publish
from frenzy_trainer.reports import ReportFile


def plan() -> Mapping[str, Any] | None:
    """Return this attempt's plan.json (job, attempt, spec, plan); None outside Frenzy.

    Raises:
        Misconfigured: the plan's file cannot be read.
    """
    path = os.environ.get("FRENZY_PLAN")
    return read_json(Path(path)) if path else None


def report(*, step: int, loss: float | None = None, tokens: int | None = None) -> None:
    """Report an optimizer step: how many are done, and the loss.

    ``tokens`` are those that all ranks together trained on since the previous report.
    """
    reporter = _reporter()
    if reporter is not None:
        reporter.step(step, loss, tokens)


def checkpoint_dir() -> Path | None:
    """Return the job's checkpoint folder, shared by its ranks and attempts; None outside Frenzy."""
    path = os.environ.get("FRENZY_CHECKPOINT_DIR")
    return Path(path) if path else None


def resume_from() -> Path | None:
    """Return the checkpoint to start from; None when this attempt starts anew."""
    path = os.environ.get("FRENZY_RESUME_FROM")
    return Path(path) if path else None


@contextmanager
def checkpoint(step: int) -> Iterator[Path]:
    """Write a checkpoint on rank 0: yield an empty folder, then make it durable and report it.

    A later attempt finds it through ``resume_from``. When the block raises, nothing is kept.

    Raises:
        RuntimeError: outside Frenzy, where there is no checkpoint folder.
        OSError: the folder cannot be written.
    """
    folder = checkpoint_dir()
    if folder is None:
        raise RuntimeError("FRENZY_CHECKPOINT_DIR is not set: checkpoints need a Frenzy job")
    temporary = folder / f".tmp-{os.environ.get('FRENZY_ATTEMPT', '0')}-{step}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        publish(temporary, folder / f"step-{step}")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    reporter = _reporter()
    if reporter is not None:
        reporter.file.checkpoint(step)


class _Reporter:
    """Keep the report file of this process and the time of its latest report."""

    def __init__(self, file: ReportFile) -> None:
        self.file = file
        self._previous: float | None = None

    def step(self, step: int, loss: float | None, tokens: int | None) -> None:
        now = time.perf_counter()
        seconds = None if self._previous is None else now - self._previous
        self._previous = now
        self.file.step(
            step,
            loss=None if loss is None else float(loss),
            tokens_per_second=tokens / seconds if tokens and seconds else None,
            step_seconds=seconds,
            **peaks(),
        )


@cache  # one per process, opened by the first report
def _reporter() -> _Reporter | None:
    path = os.environ.get("FRENZY_REPORT_FILE")
    return _Reporter(ReportFile(Path(path))) if path else None


def peaks() -> dict[str, float | None]:
    """Return the peak memory of this process as report fields; empty before torch is imported."""
    if "torch" not in sys.modules:
        return {}
    from frenzy_trainer.memory import peak_memory  # noqa: PLC0415 - imports torch

    peak = peak_memory()
    return {
        "peak_allocated_bytes": peak.allocated_bytes,
        "peak_reserved_bytes": peak.reserved_bytes,
    }
