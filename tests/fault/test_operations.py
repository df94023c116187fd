"""What operators do to a running system, step by step as docs/howto.run-the-cluster.md says."""

import shutil
import signal
import time

import httpx
import pytest
from tests.support.deployment import NODES, Deployment
from tests.support.history import check
from tests.support.recording import history_of

pytestmark = pytest.mark.timeout(240)
CONTROL_PLANE = ("gateway", "marp", "scheduler")


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """A system whose nodes bear a silence: services start slowly on a busy machine."""
    folder = tmp_path_factory.mktemp("operated") / "system"
    with Deployment(folder, timing={"FENCE_AFTER_S": "60"}) as started:
        yield started


def running(system, name, seconds):
    job = system.submit(name, seconds=seconds)
    system.until(lambda: system.job(job)["state"] == "RUNNING", f"{name} runs", 60)
    return job


def back_up(system):
    """Copy the append-only files while nothing rewrites them."""
    copy = system.folder / "backup"
    with system.valkey.client() as client:
        client.config_set("auto-aof-rewrite-percentage", 0)
        shutil.copytree(system.folder / "valkey" / "appendonlydir", copy)
        client.config_set("auto-aof-rewrite-percentage", 100)
    return copy


def put_back(system, copy=None):
    system.valkey.stop()
    shutil.rmtree(system.folder / "valkey" / "appendonlydir")
    if copy is not None:
        shutil.copytree(copy, system.folder / "valkey" / "appendonlydir")
    system.valkey.start()


def safe_mode(system):
    try:
        checks = httpx.get(f"{system.url}/readyz", timeout=5).json()["checks"]
    except (httpx.TransportError, ValueError, KeyError):
        return ""
    return next(c["detail"] for c in checks if c["name"] == "safe mode")


def reconcile(system, *, apply=False):
    return system._ask("POST", f"/admin/reconcile?apply={str(apply).lower()}", 60)


def put_right(system):
    system.until(lambda: reconcile(system, apply=True)["applied"], "all nodes reported", 60)
    system.until(lambda: set(system.node_states().values()) == {"UP"}, "every node is UP", 60)


def operate(system, node, verb, **body):
    return system._ask("POST", f"/nodes/{node}:{verb}", 60, json=body)


def test_a_drained_node_s_job_goes_on_elsewhere(system):
    job = running(system, "drained", seconds=30.0)
    (node,) = {device["node"] for device in system.job(job)["devices"]}
    shown = operate(system, node, "drain", reason="new fan", deadline_s=0.5)
    assert (shown["state"], shown["drain"]) == ("DRAINING", shown["reason"])
    system.until(lambda: system.job(job)["attempt"] == 2, "another attempt", 60)
    system.until(lambda: system.job(job)["state"] == "RUNNING", "it runs again", 60)
    assert node not in {device["node"] for device in system.job(job)["devices"]}
    system.kill(node)  # an agent that comes back does not end the drain
    system.until(lambda: system.node_states()[node] == "DRAINING", "it is back", 60)
    assert operate(system, node, "undrain")["state"] == "UP"
    assert system.job(job)["retries"] == 0
    system.cancel(job)
    system.finished(job)


def test_a_store_from_an_old_copy_or_emptied_loses_nothing_and_runs_nothing_twice(system):
    done = system.submit("before-the-copy")
    system.finished(done)
    kept = running(system, "runs-through", seconds=14.0)
    copy = back_up(system)
    after = system.submit("after-the-copy")
    assert system.finished(after)["state"] == "SUCCEEDED"
    unknown = running(system, "placed-after-the-copy", seconds=15.0)

    put_back(system, copy)
    system.until(lambda: safe_mode(system), "SAFE MODE", 30)
    assert "it is an old copy" in safe_mode(system)
    refused = httpx.post(
        f"{system.url}/api/v1/jobs",
        json={"model": "gpt2-tiny", "data": "node:/x", "global_batch_size": 1},
        headers={"Authorization": f"Bearer {system.token.text}"},
    )
    assert (refused.status_code, refused.json()["code"]) == (503, "safe_mode")
    time.sleep(3)  # agents beat, evidence comes: nothing that runs is touched
    assert system.shims()
    shown = reconcile(system)
    told = {difference["entity"] for difference in shown["differences"]}
    assert {f"job:{after}", f"job:{unknown}"} <= told
    assert f"job:{done}" not in told
    put_right(system)
    assert system.job(after)["state"] == "SUCCEEDED"
    for job in (kept, unknown):
        end = system.finished(job)
        assert (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 1, 0), end

    lives = running(system, "runs-while-the-store-is-emptied", seconds=10.0)
    before = {job: system.job(job) for job in (done, kept, after, unknown)}
    put_back(system)
    for name in CONTROL_PLANE:
        system.send(name, signal.SIGKILL)
    system.until(lambda: "emptied or replaced" in safe_mode(system), "SAFE MODE", 60)
    put_right(system)
    shown = {job: system.job(job) for job in before}
    for view in (*shown.values(), *before.values()):
        view.pop("plan", None)  # plans are not in events
    assert shown == before
    end = system.finished(lives)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 1), end
    assert system.finished(system.submit("afterwards", ranks=len(NODES)))["state"] == "SUCCEEDED"
    assert check(history_of(system)) == []
