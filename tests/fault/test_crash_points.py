"""kill -9 at every point that docs/explanation/reliability.md names; every job ends once, right.

One system of real servers and processes for all points. At a point one process dies once and is
started again; nothing else is done for it.
"""

import pytest
from tests.support import points
from tests.support.history import check
from tests.support.recording import history_of

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize(
    "pair", tuple(zip(points.CONTROL, points.AGENT, strict=True)), ids="+".join
)
def test_a_crash_costs_no_job_an_attempt(system, pair):
    """A point of the control plane and one of the agent: both die in the life of two jobs."""
    for point in pair:
        system.arm(point)
    name = "-".join(pair).replace(".", "-")
    jobs = [system.submit(f"{name}-{ranks}"[-60:], ranks=ranks) for ranks in (1, 3)]
    ends = [system.finished(job) for job in jobs]
    assert all(system.struck(point) for point in pair), "nothing reached the point"
    assert [(end["state"], end["attempt"], end["retries"]) for end in ends] == 2 * [
        ("SUCCEEDED", 1, 0)
    ], ends


@pytest.mark.parametrize("point", points.SHIM)
def test_a_lost_shim_is_another_attempt(system, point):
    system.arm(point)
    end = system.finished(system.submit(point.replace(".", "-"), ranks=2))
    assert system.struck(point)
    assert (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 2, 1), end


@pytest.mark.parametrize("point", points.CANCEL)
def test_a_crash_while_a_job_is_cancelled(system, point):
    job = system.submit(point.replace(".", "-"), ranks=2, seconds=120)
    system.until(lambda: system.job(job)["state"] == "RUNNING", "it runs", 60)
    system.arm(point)
    system.cancel(job)
    end = system.finished(job)
    assert system.struck(point)
    assert (end["state"], end["reason"], end["attempt"]) == ("CANCELLED", "ByUser", 1), end


@pytest.mark.parametrize("point", points.REFUSAL)
def test_a_crash_after_a_refusal(system, point):
    system.arm(point)
    end = system.finished(system.submit(point.replace(".", "-"), workdir="node:/nowhere"))
    assert system.struck(point)
    assert (end["state"], end["reason"], end["attempt"]) == ("FAILED", "DataError", 1), end
    assert "/nowhere" in end["message"]


def test_the_whole_history_is_right(system):
    system.finished(system.submit("last"))
    history = history_of(system)
    assert check(history) == []
    runs = [(run.job, run.attempt, run.rank) for run in history.runs]
    assert len(runs) == len(set(runs)), "a rank was started twice"
    assert system.unexpected_exits() == {}
