"""The load of a chaos run: one client that submits, repeats itself, retries and cancels."""

import contextlib
import random
import threading
import time
from dataclasses import dataclass, field

import redis
from tests.support.deployment import Deployment

_CANCELLED = 0.1  # of the jobs
_REPEATED = 0.2  # of the submissions
_FAILING = 0.03
_LONG = 0.01
_PATIENCE_S = 300  # of the client, for an answer
_RANKS = {1: 50, 2: 22, 3: 8, 4: 8, 5: 3, 6: 3, 7: 2, 8: 4}
_RECENT = 20  # a job that is cancelled is one of the last so many


@dataclass(kw_only=True)
class Load:
    """``jobs`` submitted over ``seconds``, ``trained`` of them real ones of the built-in trainer.

    With ``ends`` what the system did not take by then is not submitted any more.
    ``cancelled`` are jobs whose cancel was accepted (they may have ended just before), ``failing``
    those whose ranks exit with a code that is not 0.
    """

    system: Deployment
    choice: random.Random
    prefix: str
    jobs: int
    seconds: float
    most_ranks: int
    trained: int = 0
    ends: bool = False
    data: str = ""
    most_unfinished: int = 150
    submitted: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    trainings: dict[str, int] = field(default_factory=dict)  # job -> ranks
    error: BaseException | None = None

    def start(self) -> threading.Thread:
        """Submit in a thread of its own."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            self._submit_all()
        except BaseException as error:  # noqa: BLE001 - told by whoever joins the thread
            self.error = error

    def _submit_all(self) -> None:
        began = time.monotonic()
        every = self.jobs // self.trained if self.trained else 0
        for number in range(self.jobs):
            due = began + number * self.seconds / self.jobs
            time.sleep(max(0.0, due - time.monotonic()))
            if number % 10 == 0:
                self._wait_for_room()
            if self.ends and time.monotonic() > began + self.seconds:
                return
            if every and number % every == every // 2:
                self._train(number)
            else:
                self._submit(number)
            if self.choice.random() < _CANCELLED:
                self._cancel(self.choice.choice(self.submitted[-_RECENT:]))

    def _submit(self, number: int) -> None:
        ranks = [n for n in _RANKS if n <= self.most_ranks]
        fields: dict = {"ranks": self.choice.choices(ranks, [_RANKS[n] for n in ranks])[0]}
        long = self.choice.random() < _LONG
        fields["seconds"] = self.choice.uniform(20, 40) if long else self.choice.uniform(0.05, 1.0)
        if fails := self.choice.random() < _FAILING:
            fields |= {"env": {"TEST_EXIT": "3"}, "retry": {"max_retries": 1}}
        key = f"{self.prefix}-{number}"
        job = self.system.submit(key, within_s=_PATIENCE_S, **fields)
        if self.choice.random() < _REPEATED:
            assert self.system.submit(key, within_s=_PATIENCE_S, **fields) == job
        if fails:
            self.failing.add(job)
        self.submitted.append(job)

    def _train(self, number: int) -> None:
        """Submit a job of the built-in trainer: DeepSpeed, one or two ranks."""
        ranks = 1 + len(self.trainings) % 2
        job = self.system.submit(
            f"{self.prefix}-{number}",
            within_s=_PATIENCE_S,
            ranks=ranks,
            entrypoint=None,
            workdir=None,
            data=f"blob:{self.data}",
            global_batch_size=8,
            max_steps=30,
            learning_rate=0.001,
        )
        self.trainings[job] = ranks
        self.submitted.append(job)

    def _cancel(self, job: str) -> None:
        if job not in self.trainings and self.system.cancel(job):
            self.cancelled.add(job)

    def _wait_for_room(self) -> None:
        """Wait while too many jobs are unfinished: the queue is not what is tested."""
        while True:
            with contextlib.suppress(redis.exceptions.RedisError, OSError):
                if self.system.unfinished() < self.most_unfinished:
                    return
            time.sleep(0.3)
