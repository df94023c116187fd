"""The shim with real processes: exit codes, stops, strays, fencing, locks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.agent import NASTY, SLEEP, ShimFolder, shim_folder, wait_for

from frenzy_orchestrator.shim import cgroup, locks, procfs
from frenzy_orchestrator.shim.launch import EXIT, MARKER, RUN, STOP, TOMBSTONE


def exit_codes(record):
    return {rank["rank"]: rank["exit_code"] for rank in record["ranks"]}


def test_ranks_that_end_well_are_recorded_with_their_output(tmp_path):
    with shim_folder(tmp_path / "a", ["print('one')", "print('two')"]) as folder:
        record = folder.exit_json()
        assert folder.process.wait(5) == 0
    assert record["ended_by"] == "completed"
    assert exit_codes(record) == {0: 0, 1: 0}
    assert (tmp_path / "a/1.out").read_text() == "two\n"


def test_a_failed_rank_ends_the_gang(tmp_path):
    with shim_folder(tmp_path / "a", [SLEEP, "import sys; sys.exit(7)"]) as folder:
        record = folder.exit_json()
        assert folder.living() == []
    assert record["ended_by"] == "rank_failed"
    assert exit_codes(record) == {0: -signal.SIGTERM, 1: 7}
    assert {rank["rank"]: rank["signalled"] for rank in record["ranks"]} == {0: True, 1: False}


def test_a_stop_lets_a_rank_save_and_choose_its_exit_code(tmp_path):
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(600)"
    )
    with shim_folder(tmp_path / "a", [script]) as folder:
        wait_for(lambda: (folder.path / "ready").exists())
        folder.stop(grace_s=5)
        record = folder.exit_json()
    assert record["ended_by"] == "stopped"
    assert exit_codes(record) == {0: 143}


@pytest.mark.parametrize("order", ["", "{", "[]", '{"grace_s": "soon"}', "{}"])
def test_a_malformed_stop_still_stops(tmp_path, order):
    with shim_folder(tmp_path / "a", [SLEEP]) as folder:
        folder.run_json()
        (folder.path / STOP).write_text(order)
        record = folder.exit_json()
    assert record["ended_by"] == "stopped"
    assert exit_codes(record) == {0: -signal.SIGTERM}


@pytest.mark.parametrize("with_cgroup", [False, True])
def test_a_term_ignorer_and_its_setsid_daemon_leave_nothing(tmp_path, with_cgroup):
    name = f"frenzy-test-{os.getpid()}" if with_cgroup else ""
    if with_cgroup and (made := cgroup.create(name)) is not None:
        made.remove()  # the shim makes it again; elsewhere the test covers the fall-back
    with shim_folder(tmp_path / "a", [NASTY], cgroup=name) as folder:
        wait_for(lambda: (folder.path / "ready").exists())
        daemon = int((folder.path / "daemon.pid").read_text())
        assert daemon in {process.pid for process in folder.living()}
        folder.stop(grace_s=0.2)
        record = folder.exit_json()
        assert folder.living() == []
        group = folder.read(RUN)["cgroup"]
    assert exit_codes(record) == {0: -signal.SIGKILL}
    assert not group or not os.path.exists(group)


def test_a_daemon_does_not_outlive_a_rank_that_ended_well(tmp_path):
    script = NASTY.replace("time.sleep(float", "sys.exit(0) if True else time.sleep(float")
    with shim_folder(tmp_path / "a", [script]) as folder:
        record = folder.exit_json()
        assert folder.living() == []
    assert exit_codes(record) == {0: 0}


def test_an_old_lease_fences_the_ranks(tmp_path):
    with shim_folder(tmp_path / "a", [SLEEP], fence_after_s=0.8) as folder:
        folder.run_json()
        folder.renew_lease()
        renewed = procfs.boottime()
        record = folder.exit_json()
    assert record["ended_by"] == "fenced"
    assert 0.8 <= record["boottime"] - renewed < 3


def test_a_tombstone_forbids_the_start(tmp_path):
    folder = ShimFolder(tmp_path / "a", ["open('ran', 'w')"])
    (folder.path / TOMBSTONE).touch()
    try:
        record = folder.start().exit_json()
    finally:
        folder.destroy()
    assert record["ended_by"] == "stopped"
    assert record["ranks"] == []
    assert not (folder.path / "ran").exists()


def test_a_folder_is_launched_once(tmp_path):
    with shim_folder(tmp_path / "a", ["open('ran', 'a').write('x')"]) as folder:
        folder.exit_json()
        folder.process.wait(5)
        again = subprocess.run(
            [sys.executable, "-P", "-m", "frenzy_orchestrator.shim", str(folder.path)],
            capture_output=True,
            text=True,
        )
    assert again.returncode == 3
    assert "started before" in again.stderr
    assert (tmp_path / "a/ran").read_text() == "x"


def test_a_device_held_by_another_attempt_is_not_shared(tmp_path, monkeypatch):
    lock = tmp_path / "gpu-0.lock"
    with shim_folder(tmp_path / "a", [SLEEP], locks=[lock]) as first:
        first.run_json()
        with shim_folder(tmp_path / "b", ["open('ran', 'w')"], locks=[lock]) as second:
            record = second.exit_json()
    assert record["ended_by"] == "device_busy"
    assert "gpu-0" in record["message"]
    assert not (tmp_path / "b/ran").exists()


def test_a_killed_shim_takes_its_ranks_along_and_the_lock_tells_the_truth(tmp_path):
    lock = tmp_path / "gpu-0.lock"
    with shim_folder(tmp_path / "a", [NASTY], locks=[lock]) as folder:
        run = folder.run_json()
        wait_for(lambda: (folder.path / "ready").exists())
        folder.process.kill()
        folder.process.wait()
        rank = run["ranks"][0]
        wait_for(lambda: not procfs.is_alive(rank["pid"], rank["start"]), "rank dies with the shim")
        assert folder.living(), "the daemon escaped: that is what the agent is for"
        assert not locks.is_free(lock)
        procfs.send(folder.living(), signal.SIGKILL)
        wait_for(lambda: locks.is_free(lock), "lock released with the last process")
    assert not (folder.path / EXIT).exists()


def test_a_rank_that_cannot_start_is_told(tmp_path):
    folder = ShimFolder(tmp_path / "a", [SLEEP, SLEEP])
    launch = folder.read("launch.json")
    launch["ranks"][1]["argv"] = ["/no/such/program"]
    (folder.path / "launch.json").write_text(__import__("json").dumps(launch))
    try:
        record = folder.start().exit_json()
        assert folder.living() == []
    finally:
        folder.destroy()
    assert record["ended_by"] == "launch_failed"
    assert "/no/such/program" in record["message"]


def test_the_shim_needs_only_the_standard_library():
    code = (
        "import sys, frenzy_orchestrator.shim.__main__ as m\n"
        "allowed = {'frenzy_orchestrator', 'frenzy_shared', 'frenzy_shared.crashpoints'}\n"
        "ours = {n for n in sys.modules if n.startswith('frenzy_')}\n"
        "extra = {n for n in ours - allowed if not n.startswith('frenzy_orchestrator.shim')}\n"
        "assert not extra, extra\n"
        "assert not {'pydantic', 'asyncio', 'psutil'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_secrets_come_to_the_ranks_and_nothing_is_left_of_them_to_read(tmp_path):
    folder = ShimFolder(
        tmp_path / "a", [f"import os; print(os.environ['KEY'], flush=True); {SLEEP}"]
    )
    try:
        folder.start({"KEY": "from the agent", MARKER: "what launch.json says comes first"})
        run = folder.run_json()
        assert Path(f"/proc/{run['shim']}/fd/0").readlink() == Path(os.devnull)
        wait_for(lambda: (tmp_path / "a/0.out").read_text() == "from the agent\n")
        assert folder.living()  # found by the marker
        folder.stop()
        folder.exit_json()
    finally:
        folder.destroy()
