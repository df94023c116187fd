"""Kill, freeze, cut off and fill up a whole system under load, then check what happened.

``python -m tests.fault.chaos --minutes 60`` drives a real `frenzy up` and nodes in network
namespaces (root). A small run on services of the test's own is part of the suite. A seed repeats
the choices of the driver, not the interleavings of the processes.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import redis
from tests.fault.blows import Log, Striker, Weather
from tests.fault.chaos_report import Result, result_of, with_system, write
from tests.fault.load import Load
from tests.support.deployment import Deployment
from tests.support.installed import HEAD, Installed
from tests.support.network import Network
from tests.support.recording import history_of
from tests.support.watch import Watch

NODES = ("node-a", "node-b", "node-c", "node-d")
DEVICES_PER_NODE = 6
_JOBS_PER_MIN = {True: 168, False: 60}  # without torch; of a long run 10,000 an hour
_SETTLE_S = 600.0  # for what is unfinished when the blows of a long run end
_SHORT_SETTLE_S = 75.0
_LONG_RUN_MIN = 20.0  # from here on a run counts as long: calmer, so that work gets done


@dataclass(kw_only=True)
class Chaos:
    """One run: a load, blows for ``seconds``, and (on an installed system) bad weather."""

    system: Deployment
    seed: int
    seconds: float
    load: Load
    blow_pause_s: tuple[float, float] = (0.3, 1.6)
    weather_pause_s: tuple[float, float] = (3.0, 12.0)
    settle_s: float = _SETTLE_S
    log: Log = field(default_factory=Log)

    def run(self) -> None:
        """Go on until the time is over; then wait until every job has ended."""
        end = time.monotonic() + self.seconds
        submitting = self.load.start()
        striker = Striker(
            system=self.system,
            choice=random.Random(self.seed),
            log=self.log,
            pause_s=self.blow_pause_s,
        )
        with self._weather(end):
            striker.strike_until(end)
        submitting.join()
        if self.load.error is not None:
            raise self.load.error
        self.system.until(self._all_over, "the end of every job", self.settle_s)

    @contextlib.contextmanager
    def _weather(self, end: float) -> Iterator[None]:
        if not isinstance(self.system, Installed):
            yield
            return
        weather = Weather(
            system=self.system,
            choice=random.Random(self.seed + 1),
            log=self.log,
            pause_s=self.weather_pause_s,
            end=end,
        )
        thread = threading.Thread(target=weather.storm, daemon=True)
        thread.start()
        yield
        thread.join()

    def _all_over(self) -> bool:
        try:
            return self.system.unfinished() == 0
        except (redis.exceptions.RedisError, OSError):
            return False


def small(system: Deployment, seed: int, *, seconds: float, jobs: int) -> Chaos:
    """Return the run that the suite can afford."""
    load = Load(
        system=system,
        choice=random.Random(seed),
        prefix=f"chaos-{seed}",
        jobs=jobs,
        seconds=seconds,
        most_ranks=2,
    )
    return Chaos(system=system, seed=seed, seconds=seconds, load=load)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run chaos from the command line; 1 when an invariant was broken or a job ended wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--jobs", type=int, help="without torch; default: 60 a minute, 168 in a long run"
    )
    parser.add_argument("--trained", type=int, help="with DeepSpeed; default: one in two minutes")
    parser.add_argument("--results", type=Path, help="write the report into this folder")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # clean up then too
    if os.geteuid() != 0 or shutil.which("ip") is None:
        parser.error("needs root and iproute2: it makes network namespaces and mounts small disks")
    print(f"seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="frenzy-chaos-"))
    with Network((HEAD, *NODES)) as network, network.inside(HEAD):
        system = Installed(folder, network, NODES, DEVICES_PER_NODE)
        with system:
            result = _run(system, options)
    if options.results is not None:
        write(options.results, f"{options.minutes:.0f}-minutes", result)
    print(result.summary(), flush=True)
    if result.wrong:
        print(f"logs, events and records are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _run(system: Installed, options: argparse.Namespace) -> Result:
    minutes = options.minutes
    chaos = _large(system, options)
    early = []
    with Watch(system=system, every_s=max(2.0, minutes / 6)) as watch:
        try:
            chaos.run()
        except Exception as error:  # noqa: BLE001 - what happened until then is still judged
            early = [f"the run ended early: {error!r}"]
    history = history_of(system, silent=frozenset(chaos.load.trainings))
    result = result_of(chaos.load, history, chaos.log.counts)
    result.figures |= {"seed": options.seed, "seconds": chaos.seconds}
    with_system(result, system, watch)
    result.violations += early
    result.violations += [f"I6: after the end there is {line}" for line in system.leave()]
    if result.wrong:
        with (system.folder / "events.jsonl").open("w") as file:
            file.writelines(f"{json.dumps(asdict(event))}\n" for event in history.events)
    return result


def _large(system: Installed, options: argparse.Namespace) -> Chaos:
    minutes, long = options.minutes, options.minutes >= _LONG_RUN_MIN
    trained = options.trained if options.trained is not None else max(1, round(minutes / 2))
    plain = options.jobs if options.jobs is not None else round(minutes * _JOBS_PER_MIN[long])
    load = Load(
        system=system,
        choice=random.Random(options.seed),
        prefix=f"chaos-{options.seed}",
        jobs=plain + trained,
        seconds=minutes * 60,
        most_ranks=8,
        ends=True,
        most_unfinished=150 if long else 50,
        trained=trained,
        data=system.upload(_text(system.folder / "text")),
    )
    return Chaos(
        system=system,
        seed=options.seed,
        seconds=minutes * 60,
        load=load,
        blow_pause_s=(2.0, 12.0) if long else (0.5, 4.0),
        weather_pause_s=(5.0, 40.0) if long else (3.0, 12.0),
        settle_s=_SETTLE_S if long else _SHORT_SETTLE_S,
    )


def _text(folder: Path) -> Path:
    """Write something to learn."""
    folder.mkdir()
    (folder / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 800)
    return folder


if __name__ == "__main__":
    sys.exit(main())
