"""What a job may take of its node: processes, files, disk; and what is left when it takes more."""

import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.support.agent import SLEEP, ShimFolder, order, wait_for

from frenzy_orchestrator.adapters import diskuse
from frenzy_orchestrator.adapters.diskuse import used_bytes
from frenzy_orchestrator.shim import cgroup, procfs
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages.v1 import EvidenceKind

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MOST = 40
# Every process forks as often as it may, and none of them ever ends or obeys SIGTERM.
BOMB = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        os.fork()
    except OSError:
        open("full", "w").close()
        time.sleep(0.01)
"""
LIMITS = """
import json, resource
print(json.dumps({n: resource.getrlimit(getattr(resource, n)) for n in dir(resource)
                  if n.startswith("RLIMIT_")}), flush=True)
"""


@pytest.fixture
def open_folder():
    """A folder that every user can get to."""
    root = Path(tempfile.mkdtemp(prefix="frenzy-test-", dir="/var/tmp"))
    root.chmod(0o777)
    yield root
    shutil.rmtree(root)


def launched(path, script, **changes):
    """A shim on one rank, with what the tests' agent does not say."""
    folder = ShimFolder(path, [script])
    launch = folder.read("launch.json")
    launch["ranks"][0]["argv"][0] = "/usr/bin/python3"
    launch["ranks"][0]["env"]["TMPDIR"] = str(path)
    (path / "launch.json").write_text(json.dumps({**launch, **changes}))
    path.chmod(0o777)
    return folder.start()


def ends_with_nothing_left(folder):
    wait_for(lambda: (folder.path / "full").exists(), "the bomb is full")
    living = len(folder.living())
    folder.stop(grace_s=0.1)
    folder.exit_json()
    assert folder.living() == []
    return living


@as_root
def test_a_fork_bomb_ends_at_the_limit_of_its_user(open_folder):
    user = {"uid": 200_007, "gid": 200_007, "groups": []}
    folder = launched(open_folder / "a", BOMB, run_as=user, limits={"processes": MOST}, cgroup="")
    try:
        assert MOST // 2 < ends_with_nothing_left(folder) <= MOST
    finally:
        folder.destroy()


@as_root
def test_a_fork_bomb_of_root_ends_at_the_limit_of_its_cgroup(open_folder):
    if not cgroup.counts_processes():
        pytest.skip("no cgroup with a pids controller can be made here")
    name = f"frenzy-bomb-{os.getpid()}"
    folder = launched(open_folder / "a", BOMB, limits={"processes": MOST}, cgroup=name)
    try:
        assert MOST // 2 < ends_with_nothing_left(folder) <= MOST
        run = folder.read("run.json")
        assert not any(Path(run[kind]).exists() for kind in ("cgroup", "counting") if run[kind])
    finally:
        folder.destroy()


@as_root
def test_what_a_lost_shim_leaves_of_a_fork_bomb_dies_too(open_folder):
    user = {"uid": 200_008, "gid": 200_008, "groups": []}
    folder = launched(open_folder / "a", BOMB, run_as=user, limits={"processes": MOST}, cgroup="")
    try:
        wait_for(lambda: (folder.path / "full").exists(), "the bomb is full")
        folder.process.kill()
        folder.process.wait()
        wait_for(lambda: not procfs.end(folder.living), "nothing is left")
    finally:
        folder.destroy()


def test_limits_reach_the_ranks(tmp_path):
    bounds = {"open_files": 100, "file_bytes": 4096, "address_space_bytes": 2**33}
    folder = launched(tmp_path / "a", LIMITS, limits=bounds)
    try:
        folder.exit_json()
    finally:
        folder.destroy()
    found = json.loads((folder.path / "0.out").read_text())
    assert found["RLIMIT_CORE"] == [0, 0]
    assert found["RLIMIT_NOFILE"] == [100, 100]
    assert found["RLIMIT_FSIZE"] == [4096, 4096]
    assert found["RLIMIT_AS"] == [2**33, 2**33]
    assert found["RLIMIT_NPROC"] == list(resource.getrlimit(resource.RLIMIT_NPROC))


def test_a_launch_file_of_an_older_agent_starts_as_before(tmp_path):
    folder = ShimFolder(tmp_path / "a", ["print('ran')"])
    launch = folder.read("launch.json")
    for new in ("limits", "run_as", "cover_tmp"):
        del launch[new]
    (folder.path / "launch.json").write_text(json.dumps(launch))
    try:
        assert folder.start().exit_json()["ended_by"] == "completed"
    finally:
        folder.destroy()


def test_where_nothing_can_be_mounted_tmpdir_names_the_folder_all_the_same(tmp_path):
    folder = launched(
        tmp_path / "a",
        "import os; print(os.environ['TMPDIR'])",
        cover_tmp=str(tmp_path / "not there"),
    )
    launch = folder.read("launch.json")
    try:
        folder.exit_json()
    finally:
        folder.destroy()
    assert (folder.path / "0.out").read_text() == launch["ranks"][0]["env"]["TMPDIR"] + "\n"


@as_root
def test_ranks_die_with_their_shim_as_another_user_too(open_folder):
    user = {"uid": 200_009, "gid": 200_009, "groups": []}
    folder = launched(open_folder / "a", SLEEP, run_as=user)
    try:
        rank = folder.run_json()["ranks"][0]
        folder.process.kill()
        folder.process.wait()
        wait_for(lambda: not procfs.is_alive(rank["pid"], rank["start"]), "the rank is dead")
    finally:
        folder.destroy()


async def test_an_attempt_that_fills_its_share_of_the_disk_ends_with_the_numbers(
    cluster, monkeypatch
):
    monkeypatch.setattr(diskuse, "LOOK_S", 0.05)
    agent = await cluster.agent(job_disk_bytes=1024**2)
    script = "import time\nopen('big', 'wb').write(b'x' * 2 * 1024**2)\ntime.sleep(600)\n"
    await cluster.control.start_job("node-a", order(spec=cluster.script(script)))
    told = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert told.outcomes[0].reason is StopReason.DISK_QUOTA_EXCEEDED
    assert "more than 1.00 MiB (FRENZY_JOB_DISK_BYTES)" in told.outcomes[0].message
    assert not (agent.folder() / "work").exists(), "the space is free again"
    assert agent.living() == []


async def test_temporary_files_count_and_go_with_the_attempt(cluster, monkeypatch):
    monkeypatch.setattr(diskuse, "LOOK_S", 0.05)
    agent = await cluster.agent(job_disk_bytes=1024**2)
    script = (
        "import os, time\n"
        "with open(os.environ['TMPDIR'] + '/big', 'wb') as file:\n"
        "    file.write(b'x' * 2 * 1024**2)\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr("frenzy_orchestrator.adapters.launching.LONGEST_TMP", 1000)
    await cluster.control.start_job("node-a", order(spec=cluster.script(script)))
    told = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert told.outcomes[0].reason is StopReason.DISK_QUOTA_EXCEEDED
    assert list((agent.settings.data_dir / "tmp").iterdir()) == []


def test_disk_use_counts_what_is_really_taken_once(tmp_path):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/file").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "deep/er/file", tmp_path / "again")
    (tmp_path / "link").symlink_to("/usr")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert 100_000 <= used_bytes([tmp_path]) < 100_000 + 64 * 1024
    assert used_bytes([tmp_path / "gone"]) == 0
