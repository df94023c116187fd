"""Watch what a system holds while it runs: memory, descriptors, threads, and what its servers keep."""

import contextlib
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import redis
from tests.support.installed import Installed

from frenzy_shared.units import MIB

_SERVERS = frozenset({"nats", "valkey"})
# Growth that counts as none: noise of allocators and of processes that were just started.
_FLAT_RATIO = 1.15
_FLAT_SLACK = {"rss_bytes": 8 * MIB, "descriptors": 10, "threads": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One process at one moment; ``at_s`` counts from the start of the run."""

    at_s: float
    name: str
    rss_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the servers kept at one moment, and how many jobs had been accepted by then."""

    at_s: float
    machine_load: float
    jobs: int
    store_keys: int
    store_memory_bytes: int
    store_disk_bytes: int
    streams_disk_bytes: int


@dataclass(kw_only=True)
class Watch:
    """Takes samples in a thread of its own between ``with`` and its end."""

    system: Installed
    every_s: float
    samples: list[Sample] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def flat(self) -> dict[str, dict[str, object]]:
        """Compare each kind of service's peaks in the second and in the last quarter of the run.

        The servers are not among them: they keep what jobs leave, see ``per_job``.
        """
        end = self.samples[-1].at_s
        by_kind: dict[str, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            if sample.name not in _SERVERS:
                by_kind[sample.name.partition("-")[0]].append(sample)
        found = {}
        for kind, samples in sorted(by_kind.items()):
            early = [s for s in samples if 0.25 * end <= s.at_s < 0.5 * end]
            late = [s for s in samples if s.at_s >= 0.75 * end]
            peaks = {what: (_peak(early, what), _peak(late, what)) for what in _FLAT_SLACK}
            grown = [
                what
                for what, (before, after) in peaks.items()
                if after > before * _FLAT_RATIO + _FLAT_SLACK[what]
            ]
            found[kind] = {**peaks, "grown": grown, "verdict": "not flat" if grown else "flat"}
        return found

    def per_job(self) -> dict[str, tuple[float, ...]]:
        """Return what the servers kept for each job of the first and of the second half."""
        first, middle, last = self.kept[0], self.kept[len(self.kept) // 2], self.kept[-1]
        names = ("store_keys", "store_memory_bytes", "streams_disk_bytes")
        halves = ((first, middle), (middle, last))
        return {
            name: tuple(
                round((getattr(b, name) - getattr(a, name)) / max(1, b.jobs - a.jobs), 1)
                for a, b in halves
            )
            for name in names
        }

    def _watch(self) -> None:
        while not self._ending.wait(self.every_s):
            at_s = round(time.monotonic() - self._began, 1)
            for name, mark in sorted(self.system.marks().items()):
                with contextlib.suppress(OSError, KeyError, IndexError):
                    self.samples.append(_sample(at_s, name, mark.pid))
            with contextlib.suppress(OSError, ValueError, redis.exceptions.RedisError):
                self.kept.append(self._keep(at_s))

    def _keep(self, at_s: float) -> Kept:
        layout = self.system.layout
        with redis.Redis.from_url(self.system.store_url, socket_timeout=2) as store:
            return Kept(
                at_s=at_s,
                machine_load=round(os.getloadavg()[0], 1),
                jobs=store.zcard("{frenzy}:jobs"),
                store_keys=store.dbsize(),
                store_memory_bytes=store.info("memory")["used_memory"],
                store_disk_bytes=_size(layout.server("valkey")),
                streams_disk_bytes=_size(layout.server("nats")),
            )


def _sample(at_s: float, name: str, pid: int) -> Sample:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return Sample(
        at_s=at_s,
        name=name,
        rss_bytes=int(status["VmRSS"].split()[0]) * 1024,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(status["Threads"]),
    )


def _peak(samples: list[Sample], what: str) -> int:
    return max((getattr(sample, what) for sample in samples), default=0)


def _size(folder: Path) -> int:
    """Return the bytes of all files; one that vanishes meanwhile counts nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(f"{place}/{name}").st_size
    return total
