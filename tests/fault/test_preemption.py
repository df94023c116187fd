"""Preemption and resizing on the whole system, with kill -9 of the scheduler at its points.

Ranks are scripts that declare what they can go on with; what they trained is in test_preemption of
tests/e2e. The history at the end proves that no device ever had two live attempts.
"""

from collections.abc import Iterator

import pytest
from tests.support import points
from tests.support.deployment import DEVICES_PER_NODE, NODES, Deployment
from tests.support.history import check
from tests.support.recording import history_of

pytestmark = pytest.mark.timeout(240)

ALL = DEVICES_PER_NODE * len(NODES)
TIMING = {"POLICY": "frenzy", "MIN_RUN_FACTOR": "0", "RESTART_PRIOR_S": "0.1"}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("preemption"), timing=TIMING) as running:
        yield running


def running(system, job):
    system.until(lambda: system.job(job)["state"] == "RUNNING", f"{job} runs", 60)


def counts(end):
    return (end["state"], end["attempt"], end["preemptions"], end["retries"])


@pytest.mark.parametrize("point", points.DISPLACE)
def test_a_crash_while_a_job_makes_way(system, point):
    name = point.replace(".", "-")
    long = system.submit(
        f"long-{name}",
        ranks=ALL,
        seconds=120,
        later_seconds=0.3,
        preemptible=True,
        max_steps=10**6,
    )
    running(system, long)
    system.arm(point)
    urgent = system.submit(f"urgent-{name}", seconds=0.5, max_steps=1)
    ends = [system.finished(urgent), system.finished(long)]
    assert system.struck(point)
    assert [counts(end) for end in ends] == [("SUCCEEDED", 1, 0, 0), ("SUCCEEDED", 2, 1, 0)]


def test_a_job_grows_when_devices_become_free_and_others_are_left_alone(system):
    stays = system.submit("stays", ranks=ALL - 1, seconds=4, preemptible=False, max_steps=10**6)
    running(system, stays)
    grows = system.submit(
        "grows",
        seconds=120,
        later_seconds=0.3,
        preemptible=True,
        elastic="elastic",
        max_steps=10**6,
        global_batch_size=16,
        sequence_length=256,  # two devices are almost twice as fast
        resources={"max_gpus": 2},
    )
    running(system, grows)
    assert len(system.job(grows)["devices"]) == 1
    ends = [system.finished(stays), system.finished(grows)]
    assert [counts(end) for end in ends] == [("SUCCEEDED", 1, 0, 0), ("SUCCEEDED", 2, 1, 0)]
    assert ends[1]["plan"]["device_count"] == 2


def test_a_script_that_never_saved_is_not_stopped(system):
    keeps = system.submit("keeps", ranks=ALL, seconds=2, max_steps=10**6)
    running(system, keeps)
    urgent = system.submit("waits", seconds=0.3, max_steps=1)
    assert counts(system.finished(urgent)) == ("SUCCEEDED", 1, 0, 0)
    assert counts(system.finished(keeps)) == ("SUCCEEDED", 1, 0, 0)


def test_the_whole_history_is_right(system):
    history = history_of(system)
    assert check(history) == []
    assert system.unexpected_exits() == {}
