"""Wall clocks that jump under services at work: an hour ahead, an hour back, a day ahead."""

import signal
from datetime import datetime

import pytest
from tests.support.deployment import ROOT, Deployment
from tests.support.history import check
from tests.support.recording import history_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

HOUR_S = 3600
PAUSE_S = 3.0
JUMPS_S = {"hour-ahead": HOUR_S, "hour-back": -HOUR_S, "day-ahead": 24 * HOUR_S}
SERVICES = ("gateway", "marp", "scheduler", "node-a")


class Jumping(Deployment):
    """Every service reads the wall clock through a file of its own."""

    def _service(self, name, module, **settings):
        service = super()._service(name, module, **settings)
        clock = self.folder / f"{name}.clock"
        clock.write_text("0")
        path = f"{ROOT / 'tests' / 'support' / 'jumping'}:{service.env['PYTHONPATH']}"
        service.env |= {"TEST_CLOCK": str(clock), "PYTHONPATH": path}
        return service

    def jump(self, seconds: int, *names: str) -> None:
        for name in names:
            aside = self.folder / "aside.clock"
            aside.write_text(str(seconds))
            aside.replace(self.folder / f"{name}.clock")


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    timing = {"BACKOFF_BASE_S": str(PAUSE_S), "BACKOFF_MAX_S": "6"}
    with Jumping(tmp_path_factory.mktemp("clocks"), timing=timing) as running:
        yield running


def running(system, name, seconds, **options):
    job = system.submit(name, seconds=seconds, **options)
    system.until(lambda: system.job(job)["state"] == "RUNNING", f"{name} runs", 60)
    return job


def pause_s(system, job):
    """Return how long a job waited for its second attempt, by the store's clock."""
    entries = system._ask("GET", f"/jobs/{job}/timeline", 10)["entries"]
    times = [
        datetime.fromisoformat(entry["time"])
        for entry in entries
        if (entry["state"], entry["attempt"]) in {("QUEUED", 1), ("RESERVED", 2)}
    ]
    return (times[1] - times[0]).total_seconds()


@pytest.mark.parametrize("jump", JUMPS_S)
def test_a_jump_of_any_service_changes_nothing(system, jump):
    lasting = running(system, f"lasts-{jump}", 6.0, ranks=2)
    for name in SERVICES:
        system.jump(JUMPS_S[jump], name)
        job = system.submit(f"after-{jump}-{name}")
        assert system.finished(job, within_s=30)["state"] == "SUCCEEDED"
        assert set(system.node_states().values()) == {"UP"}
    system.jump(0, *SERVICES)
    end = system.finished(lasting, within_s=30)
    assert (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 1, 0)


@pytest.mark.parametrize("jump", ["hour-back", "hour-ahead"])
def test_time_limits_and_pauses_keep_their_length(system, jump):
    """A pause after a failure, and a job's longest duration."""
    limited = running(system, f"limited-{jump}", 60.0, max_duration="6s")
    failing = running(system, f"fails-{jump}", 60.0, later_seconds=0.2, ranks=2)
    shim = system.shims(failing)[0]
    system.send_to(shim, signal.SIGKILL)
    system.until(lambda: system.job(failing)["state"] == "QUEUED", "its pause", 20)
    system.jump(JUMPS_S[jump], "scheduler")
    assert system.job(failing)["state"] == "QUEUED"
    end = system.finished(failing, within_s=20)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert pause_s(system, failing) >= PAUSE_S
    end = system.finished(limited, within_s=20)
    assert (end["state"], end["reason"]) == ("FAILED", "DeadlineExceeded")
    system.jump(0, "scheduler")


def test_the_whole_history_is_right(system):
    assert check(history_of(system)) == []
    assert system.unexpected_exits() == {}
