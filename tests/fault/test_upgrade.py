"""A rolling upgrade from an earlier version of main, in the order of docs/howto/upgrade.md, with
jobs at work all the time: services of both versions speak to each other in every step.
"""

import os
import signal
import subprocess
import sys

import pytest
from tests.support.deployment import NODES, ROOT, Deployment
from tests.support.history import check
from tests.support.recording import history_of

PREVIOUS = "09a0abda46da1275ec7c7d9a88a65b295d6f1581"
PACKAGES = (
    "sdk",
    "shared",
    "trainer",
    *(f"services/{name}" for name in ("gateway", "marp", "orchestrator", "scheduler")),
    ".",
)
# Whoever reads is upgraded before whoever writes: see the page.
ORDER = (*NODES, "scheduler", "marp", "gateway")


def _has_history() -> bool:
    asked = ("git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}")
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not _has_history(), reason="needs history: git fetch --unshallow"),
]


class Upgrading(Deployment):
    """All of it begins as the previous version; ``upgrade`` takes one service to this one."""

    def __init__(self, folder, previous) -> None:
        self.previous = path_of(previous)
        super().__init__(folder)

    def make_streams(self) -> None:
        self.init(self.previous)

    def init(self, path: str) -> None:
        """Run a version's `frenzy init`: streams, and functions of the store."""
        env = {
            **os.environ,
            "PYTHONPATH": path,
            "FRENZY_NATS_URL": self.nats.url,
            "FRENZY_REDIS_URL": self.valkey.url,
        }
        argv = [sys.executable, "-c", "from frenzy.cli import main; main()", "init"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def upgrade(self, name: str) -> None:
        service = self.services[name]
        before = len(service.exits)
        service.env["PYTHONPATH"] = path_of(ROOT)
        self.send(name, signal.SIGTERM)
        self.until(lambda: len(service.exits) > before, f"{name} ends", 15)
        assert service.exits.pop() == 0

    def _service(self, name, module, **settings):
        service = super()._service(name, module, **settings)
        service.env["PYTHONPATH"] = self.previous
        return service


def untroubled(job) -> bool:
    return (job["state"], job["attempt"], job["retries"]) == ("SUCCEEDED", 1, 0)


def path_of(tree) -> str:
    return ":".join(str(tree / package) for package in PACKAGES)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upgrade")
    tree = folder / "previous"
    tree.mkdir()
    packed = subprocess.run(
        ("git", "archive", PREVIOUS, "--", *PACKAGES[:-1], "tests", "deploy"),
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    subprocess.run(("tar", "-x", "-C", str(tree)), input=packed.stdout, check=True)
    with Upgrading(folder / "system", tree) as running:
        yield running


def test_services_are_upgraded_one_by_one_while_jobs_run(system):
    before = system.submit("before")
    assert system.finished(before)["state"] == "SUCCEEDED"
    end = system.folder / "end"
    lasting = system.submit("lasts", ranks=4, seconds=200.0, env={"TEST_END": str(end)})
    system.until(lambda: system.job(lasting)["state"] == "RUNNING", "it runs", 60)
    system.init(path_of(ROOT))
    for name in ORDER:
        waiting = system.submit(f"before-{name}")
        system.upgrade(name)
        after = system.submit(f"after-{name}")
        for job in (waiting, after):
            assert untroubled(system.finished(job))
    end.touch()
    assert untroubled(system.finished(lasting))
    assert system.job(before)["state"] == "SUCCEEDED"


def test_an_old_service_that_starts_beside_newer_functions_is_refused_and_says_so(system):
    service = system.services["marp"]
    env = {**service.env, "PYTHONPATH": system.previous}
    done = subprocess.run(service.argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the store's function library frenzy1 has version" in done.stderr
    assert "upgrade this service to the version of the others" in done.stderr


def test_the_whole_history_is_right(system):
    assert check(history_of(system)) == []
    assert system.unexpected_exits() == {}
