"""What `frenzy demo` runs: a temporary mixed cluster, real text, and four jobs."""

import os
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from frenzy.local import control, credentials
from frenzy.local.layout import Layout
from frenzy.local.options import MIXED_CLUSTER, Options, parse_emulated
from frenzy_shared.units import MIB

_CORPUS_BYTES: Final = 2 * MIB
# The published algorithm takes the smallest sufficient card: that is what the demo tells about.
POLICY: Final = "has"
_SETTINGS: Final = {"FRENZY_POLICY": POLICY}
_STOP_GRACE_S: Final = 3.0  # nobody needs these jobs' checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """One job and the sentence that introduces it."""

    title: str
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCluster:
    """A running cluster of the demo's own."""

    url: str
    token: str
    corpus: Path


def jobs(corpus: Path) -> tuple[DemoJob, ...]:
    """Return the four jobs on the text in ``corpus``."""
    common = {"data": str(corpus), "learning_rate": 1e-3, "seed": 7}
    return (
        DemoJob(
            title="A small model. It fits the smallest card; nothing is pinned.",
            spec={
                **common,
                "name": "small",
                "model": "gpt2-tiny",
                "sequence_length": 128,
                "global_batch_size": 8,
                "max_steps": 30,
            },
        ),
        DemoJob(
            title="A model too large for most cards: one large card, or several with ZeRO.",
            spec={
                **common,
                "name": "large",
                "model": "llama-medium",
                "sequence_length": 128,
                "global_batch_size": 4,
                "max_steps": 8,
            },
        ),
        DemoJob(
            title="Two GPUs of a kind of which every node has only one: the gang spans two nodes.",
            spec={
                **common,
                "name": "two-nodes",
                "model": "llama-small",
                "sequence_length": 128,
                "global_batch_size": 8,
                "max_steps": 12,
                "resources": {"kinds": ["emulated-a100-40"], "gpus": 2},
            },
        ),
        DemoJob(
            title="GPT-2 pinned to one smallest card. It can never fit, and that is said now.",
            spec={
                **common,
                "name": "impossible",
                "model": "gpt2",
                "sequence_length": 128,
                "global_batch_size": 8,
                "max_steps": 10,
                "resources": {"kinds": ["emulated-rtx2080ti"], "gpus": 1},
            },
        ),
    )


@contextmanager
def temporary_cluster(progress: control.Progress) -> Iterator[DemoCluster]:
    """Run a mixed cluster beside whatever else runs; at the end nothing of it is left.

    It also ends when this process is killed: its supervisor watches for that.
    """
    temporary = tempfile.TemporaryDirectory(prefix="frenzy-demo-")
    layout = Layout(Path(temporary.name) / "cluster")
    supervisor = None
    try:
        corpus = _copy_corpus(Path(temporary.name) / "python-sources")
        options = Options(
            port=0,
            nodes=parse_emulated(MIXED_CLUSTER),
            settings=_SETTINGS,
            stop_grace_s=_STOP_GRACE_S,
            die_with_parent=True,
        )
        control.prepare(layout, options)
        supervisor = control.start(layout)
        status = control.wait_ready(layout, progress, supervisor)
        token = credentials.load_or_make(layout).admin_token
        yield DemoCluster(url=status.url, token=token, corpus=corpus)
    finally:
        with _uninterrupted(), temporary:
            if supervisor is not None:
                progress("stopping everything")
                control.abandon(layout, progress, supervisor)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let an impatient second Ctrl-C change nothing: what is being removed is removed whole."""
    told = False

    def tell(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's shape
        nonlocal told
        if not told:
            told = True
            with suppress(OSError):  # not through sys.stderr: that may be in the middle of a write
                os.write(2, b"still stopping\n")

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _copy_corpus(target: Path) -> Path:
    """Copy the first sources of the Python standard library, in order of their names."""
    target.mkdir()
    left_bytes = _CORPUS_BYTES
    for source in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        left_bytes -= source.stat().st_size
        if left_bytes < 0:
            break
        shutil.copyfile(source, target / source.name)
    return target
