"""kill -9 at every point that docs/explanation/reliability.md names; every job ends once, right.

One system of real servers and processes for all points. At a point one process dies once and is
started again; nothing else is done for it.
"""

import pytest
from tests.support.history import check
from tests.support.recording import history_of

pytestmark = pytest.mark.timeout(240)

# Points at which the attempt that runs goes on.
SEAMLESS = (
    "gateway.before-submit",
    "gateway.after-submit",
    "relay.after-publish",
    "marp.after-planning",
    "marp.after-change",
    "scheduler.before-claim",
    "scheduler.after-claim",
    "controller.before-effect",
    "controller.after-effect",
    "controller.between-arrows",
    "agent.before-journal",
    "agent.after-journal",
    "agent.after-prepared",
    "agent.after-go",
    "agent.after-shim-start",
    "agent.after-started",
    "agent.before-exited",
    "agent.after-exited",
    "agent.after-clean",
    "agent.after-publish",
)
# Points after which nobody can know how the ranks ended: another attempt runs.
SHIM = ("shim.after-run", "shim.after-ranks", "shim.before-exit")


@pytest.mark.parametrize("point", SEAMLESS)
def test_a_crash_costs_no_job_an_attempt(system, point):
    system.arm(point)
    jobs = [system.submit(f"{point.replace('.', '-')}-{ranks}", ranks=ranks) for ranks in (1, 3)]
    ends = [system.finished(job) for job in jobs]
    assert system.struck(point), "nothing reached the point"
    assert [(end["state"], end["attempt"], end["retries"]) for end in ends] == 2 * [
        ("SUCCEEDED", 1, 0)
    ], ends


@pytest.mark.parametrize("point", SHIM)
def test_a_lost_shim_is_another_attempt(system, point):
    system.arm(point)
    end = system.finished(system.submit(point.replace(".", "-"), ranks=2))
    assert system.struck(point)
    assert (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 2, 1), end


@pytest.mark.parametrize("point", ["gateway.after-cancel", "agent.after-tombstone"])
def test_a_crash_while_a_job_is_cancelled(system, point):
    job = system.submit(f"{point.replace('.', '-')}", ranks=2, seconds=120)
    system.until(lambda: system.job(job)["state"] == "RUNNING", "it runs", 60)
    system.arm(point)
    system.cancel(job)
    end = system.finished(job)
    assert system.struck(point)
    assert (end["state"], end["reason"], end["attempt"]) == ("CANCELLED", "ByUser", 1), end


def test_the_whole_history_is_right(system):
    system.finished(system.submit("last"))
    history = history_of(system)
    assert check(history) == []
    runs = [(run.job, run.attempt, run.rank) for run in history.runs]
    assert len(runs) == len(set(runs)), "a rank was started twice"
    assert system.unexpected_exits() == {}
