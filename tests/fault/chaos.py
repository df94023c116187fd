"""Kill and freeze random processes of a whole system under load, then check what happened.

``python -m tests.fault.chaos --minutes 60``; the same driver is a short test of the suite. A seed
repeats the choices of the driver, not the interleavings of the processes.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import points
from tests.support.deployment import NODES, Deployment
from tests.support.history import History, check
from tests.support.recording import history_of

SERVERS = ("valkey", "nats")
POINTS = (*points.CONTROL, *points.AGENT, *points.SHIM, *points.CANCEL)
_PAUSE_S = (0.3, 1.6)  # between two blows
_CANCELLED = 0.1  # of the jobs
_REPEATED = 0.2  # of the submissions
# Kinds of blows, and how often each is chosen beside the others.
_BLOWS = {"kill": 6, "freeze": 4, "point": 3, "several": 2, "server": 2, "shim": 1}
# Beyond the nodes' own limit and its margin. A node is lost and comes back; without schedulers
# every node ends its ranks by itself.
_LONG_FREEZE_S = 26.0


@dataclass(kw_only=True)
class Chaos:
    """One run: ``jobs`` submitted over ``seconds`` while processes are hit at random.

    ``cancelled`` are jobs whose cancel was accepted; they may have ended just before.
    """

    deployment: Deployment
    seed: int
    seconds: float
    jobs: int
    long_freezes: bool = False
    submitted: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    blows: Counter[str] = field(default_factory=Counter)

    @property
    def failures(self) -> list[str]:
        """Return jobs that ended otherwise than they should; empty is good."""
        return [f"{job} is {end}" for job in self.submitted if (end := self._wrong_end(job))]

    def _wrong_end(self, job: str) -> str:
        state = self.deployment.job(job)["state"]
        right = {"SUCCEEDED", "CANCELLED"} if job in self.cancelled else {"SUCCEEDED"}
        return "" if state in right else state

    def run(self) -> None:
        """Strike and submit until the time is over; then wait until every job has ended."""
        choice = random.Random(self.seed)
        submitter = threading.Thread(target=self._submit, args=(random.Random(self.seed),))
        submitter.start()
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            self._strike(choice)
            time.sleep(choice.uniform(*_PAUSE_S))
        for point in POINTS:
            self.deployment.disarm(point)
        submitter.join()
        assert len(self.submitted) == self.jobs, "submitting failed, see above"
        for job in self.submitted:
            self.deployment.finished(job, within_s=180)

    def _submit(self, choice: random.Random) -> None:
        """Be one client that retries: it repeats some submissions and cancels some jobs."""
        for number in range(self.jobs):
            key = f"chaos-{self.seed}-{number}"
            spec = {"ranks": choice.choice((1, 1, 2)), "seconds": choice.uniform(0.1, 3.0)}
            job = self.deployment.submit(key, within_s=180, **spec)
            if choice.random() < _REPEATED:
                assert self.deployment.submit(key, within_s=180, **spec) == job
            time.sleep(choice.uniform(0, self.seconds / self.jobs))
            if choice.random() < _CANCELLED and self.deployment.cancel(job):
                self.cancelled.add(job)
            self.submitted.append(job)

    def _strike(self, choice: random.Random) -> None:
        services = sorted(self.deployment.services)
        weights = {**_BLOWS, "long": 1 if self.long_freezes else 0}
        match choice.choices(tuple(weights), tuple(weights.values()))[0]:
            case "kill":
                self._kill(choice.choice(services))
            case "server":
                self._kill(choice.choice(SERVERS))
            case "several":
                for name in choice.sample(services, choice.randint(2, len(services))):
                    self._kill(name)
            case "point":
                self._note("arm", point := choice.choice(POINTS))
                self.deployment.arm(point)
            case "shim":
                if shims := self.deployment.shims():
                    self._note("kill", "shim")
                    self.deployment.send_to(choice.choice(shims), signal.SIGKILL)
            case "freeze":
                self._freeze(choice.uniform(0.2, 4.0), choice.choice((*services, *SERVERS)))
            case "long":
                schedulers = [name for name in services if name.startswith("scheduler")]
                self._freeze(_LONG_FREEZE_S, *choice.choice(([choice.choice(NODES)], schedulers)))

    def _kill(self, name: str) -> None:
        self._note("kill", name)
        self.deployment.kill(name)

    def _freeze(self, seconds: float, *names: str) -> None:
        for name in names:
            self._note("freeze" if seconds < _LONG_FREEZE_S else "freeze long", name)
            self.deployment.send(name, signal.SIGSTOP)
        time.sleep(seconds)
        for name in names:
            self.deployment.send(name, signal.SIGCONT)

    def _note(self, what: str, whom: str) -> None:
        self.blows[f"{what} {whom}"] += 1


def report(chaos: Chaos, history: History) -> dict[str, object]:
    """Return what a run did and found, ready for JSON."""
    jobs = [history.final.jobs[job] for job in chaos.submitted]
    return {
        "seed": chaos.seed,
        "seconds": chaos.seconds,
        "blows": dict(sorted(chaos.blows.items())),
        "jobs": dict(Counter(record["state"] for record in jobs)),
        "cancelled": len(chaos.cancelled),
        "failures": chaos.failures,
        "attempts": dict(sorted(Counter(record["attempt"] for record in jobs).items())),
        "events": len(history.events),
        "runs": len(history.runs),
        "unexpected_exits": chaos.deployment.unexpected_exits(),
        "violations": [str(violation) for violation in check(history)],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run chaos from the command line; 1 when an invariant was broken or a job did not succeed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--jobs-per-minute", type=int, default=40)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="frenzy-chaos-"))
    with Deployment(folder, schedulers=2) as deployment:
        chaos = Chaos(
            deployment=deployment,
            seed=options.seed,
            seconds=options.minutes * 60,
            jobs=max(1, round(options.minutes * options.jobs_per_minute)),
            long_freezes=True,
        )
        try:
            chaos.run()
        except AssertionError as error:
            print(f"not finished: {error}", file=sys.stderr)
        found = report(chaos, history_of(deployment))
    print(json.dumps(found, indent=2))
    if found["violations"] or found["failures"]:
        print(f"logs and records are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
