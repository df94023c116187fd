"""Moves beside training on the whole system, with kill -9 at every point of them.

A plain script takes the trainer's place; real training moves in tests/e2e. The history at the end
proves that no device ever had two owners, and that no two attempts of a job ever trained at once.
"""

from collections.abc import Iterator

import pytest
from tests.support import points
from tests.support.deployment import ROOT, Deployment
from tests.support.history import check
from tests.support.recording import history_of

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]

TIMING = {
    "POLICY": "frenzy",
    "MIN_RUN_FACTOR": "0",
    "RESTART_PRIOR_S": "0.1",
    "LOST_AFTER_S": "45",  # several processes die one after the other here
    "FENCE_AFTER_S": "60",
}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Six devices on three nodes. Two jobs hold three of them to the end."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TEST_TRAINER", str(ROOT / "tests/support/rank.py"))
        with Deployment(tmp_path_factory.mktemp("moving"), timing=TIMING) as running:
            (running.folder / "data.txt").write_text("some text\n" * 100)
            for ranks in (1, 2):
                runs(running, stay(running, f"stays-{ranks}", ranks=ranks, seconds=600))
            yield running


def stay(system, name, *, ranks, seconds):
    return system.submit(name, ranks=ranks, seconds=seconds, preemptible=False, max_steps=10**6)


def runs(system, job):
    system.until(lambda: system.job(job)["state"] == "RUNNING", f"{job} runs", 60)


def mover(system, name, later_seconds=0.3):
    """A job that trains on the only idle device, beside a job that soon leaves two on one node."""
    leaves = stay(system, f"{name}-leaves", ranks=2, seconds=3)
    runs(system, leaves)
    job = system.submit(
        name,
        seconds=120,
        later_seconds=later_seconds,
        env={"TEST_TRAINS": "1"},
        entrypoint=None,
        workdir=None,
        data=f"node:{system.folder}/data.txt",
        max_steps=10**6,
        global_batch_size=16,
        sequence_length=256,  # two devices are almost twice as fast
        resources={"max_gpus": 2},
    )
    runs(system, job)
    return job


def counts(end):
    return (end["state"], end["attempt"], end["preemptions"], end["retries"])


@pytest.mark.parametrize("some", points.MOVE, ids="+".join)
def test_crashes_while_a_job_moves_cost_it_nothing(system, some):
    job = mover(system, f"moves-{points.MOVE.index(some)}")
    for point in some:
        system.arm(point)
    end = system.finished(job)
    assert [point for point in some if not system.struck(point)] == []
    assert counts(end) == ("SUCCEEDED", 2, 1, 0), end
    assert end["plan"]["device_count"] == 2


def test_a_lost_shim_of_the_next_attempt_leaves_the_job_where_it_is(system):
    job = mover(system, "shim")
    system.arm("shim.after-ranks")
    system.until(lambda: system.struck("shim.after-ranks"), "the shim dies", 60)
    system.until(lambda: "given up" in system.job(job)["message"], "it is given up", 60)
    assert counts(system.job(job)) == ("RUNNING", 1, 0, 0)
    system.until(lambda: len(free(system)) == 2, "the devices are free", 60)
    assert system.cancel(job)
    assert system.finished(job)["state"] == "CANCELLED"


def test_a_job_that_is_cancelled_while_its_next_attempt_gets_ready(system):
    job = mover(system, "cancelled")
    system.until(lambda: "gets ready" in system.job(job)["message"], "it gets ready", 60)
    assert system.cancel(job)
    assert system.finished(job)["state"] == "CANCELLED"


def test_the_whole_history_is_right(system):
    for submission in system.submissions[:2]:
        system.cancel(submission.job)
        system.finished(submission.job)
    history = history_of(system)
    assert check(history) == []
    assert system.unexpected_exits() == {}
    moved = [event for event in history.events if event.type == "moving"]
    assert len(moved) >= len(points.MOVE)


def free(system):
    with system.valkey.client() as client:
        return [key for key, owner in client.hgetall("{frenzy}:device").items() if not owner]
