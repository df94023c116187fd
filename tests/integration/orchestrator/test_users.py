"""Ranks under Unix users of their own: what they cannot reach, and that training still works."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.support.agent import Cluster, eventually, order

from frenzy_orchestrator.adapters.users import may, open_job_users
from frenzy_orchestrator.core.launch import Programs
from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.confine import RunAs
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured
from frenzy_shared.messages.v1 import EvidenceKind, Phase, RankAssignment

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# The interpreter of the tests may lie where only root gets.
PYTHON = "/usr/bin/python3"
EVERYBODYS = Programs(trainer=(PYTHON,), script=(PYTHON,), bin_folder="/usr/bin")
FIRST = 200_000
EMU1 = (RankAssignment(rank=0, local_rank=0, device="emu1"),)
VICTIM = """
import json, os, tempfile, time
for folder in (os.environ["FRENZY_CHECKPOINT_DIR"], os.getcwd(), tempfile.gettempdir()):
    open(folder + "/private", "w").write("mine")
    os.makedirs(folder + "/step-1", exist_ok=True)
open(os.environ["FRENZY_REPORT_FILE"], "a").write(
    json.dumps({"kind": "checkpoint", "step": 1}) + "\\n")
print("ready", flush=True)
time.sleep(600)
"""
# Tries what it is told in data.json and prints what worked.
THIEF = """
import json, os, signal, sys
told = json.load(open(os.environ["FRENZY_DATA"]))
def attempt(name, do):
    try:
        do()
    except (PermissionError, FileNotFoundError):
        return
    print("could", name, flush=True)
for path in told["read"]:
    attempt("read " + path, lambda: open(path).read(1))
for path in told["list"]:
    attempt("list " + path, lambda: os.listdir(path))
for path in told["write"]:
    attempt("write " + path, lambda: open(path, "a").write("x"))
for path in told["replace"]:
    attempt("replace " + path, lambda: os.rename(path, path + ".old"))
for pid in told["kill"]:
    attempt(f"kill {pid}", lambda: os.kill(pid, signal.SIGTERM))
print(json.dumps({
    "ids": os.getresuid() + os.getresgid(), "groups": os.getgroups(),
    "umask": os.umask(0), "status": open("/proc/self/status").read(),
    "tmp": os.environ["TMPDIR"], "in_tmp": os.listdir("/tmp"), "user": os.environ["USER"],
}))
"""


@pytest.fixture
async def open_cluster():
    """A cluster in a folder that other users can get to, and that is not below /tmp."""
    root = Path(tempfile.mkdtemp(prefix="frenzy-test-", dir="/var/lib"))
    root.chmod(0o711)
    made = Cluster(root)
    await made.control.start()
    yield made
    await made.close()
    shutil.rmtree(root)


def lines(cluster, job, attempt=1):
    return [line.text for line in cluster.control.lines(job, attempt)]


def thief(cluster, told):
    """A job that tries what it is told: its orders come as its data."""
    spec = cluster.script(THIEF)
    data = cluster.root / "data.json"
    data.write_text(json.dumps({"read": [], "list": [], "write": [], "replace": [], **told}))
    return spec.model_copy(update={"data": f"node:{data}"})


async def test_a_job_reaches_neither_another_job_nor_the_agent(open_cluster):
    cluster = open_cluster
    agent = await cluster.agent(programs=EVERYBODYS, job_users=f"{FIRST}-{FIRST + 999}")
    key = agent.settings.data_dir / "node.key"
    key.write_text("seed")
    key.chmod(0o600)
    await cluster.control.start_job(
        "node-a", order("j1", spec=cluster.script(VICTIM), job_number=1)
    )
    await cluster.control.seen(EvidenceKind.CHECKPOINTED, "j1")
    victim, own = agent.run_json("j1")["ranks"][0]["pid"], agent.folder("j2")
    data, job = agent.settings.data_dir, agent.folder("j1")
    tmp = agent.agent.roster.journal.attempts
    temporary = next(folder.tmp for key, folder in tmp.items() if key.job == "j1")
    checkpoints = agent.settings.checkpoints / "j1"
    told = {
        "read": [
            *(f"{folder}/private" for folder in (job / "work", temporary, checkpoints)),
            *(f"{job}/{name}" for name in ("journal.json", "launch.json", "plan.json")),
            f"{job}/ranks/0/stdout.log",
            str(key),
            f"/proc/{victim}/environ",
            f"/proc/{os.getpid()}/environ",
        ],
        "list": [str(path) for path in (data / "attempts", data / "tmp", job, own, checkpoints)],
        "write": [f"{own}/exit.json", f"{own}/lease", f"{data}/ended.json", f"{own}/tombstone"],
        "replace": [f"{own}/ranks/0/stdout.log", f"{own}/ranks/0/report.jsonl", f"{own}/work"],
        "kill": [victim, os.getpid(), agent.run_json("j1")["shim"]],
    }
    given = order("j2", spec=thief(cluster, told), ranks=EMU1, job_number=2)
    await cluster.control.start_job("node-a", given)
    exited = await cluster.control.seen(EvidenceKind.EXITED, "j2")
    assert exited.outcomes[0].exit_code == 0, lines(cluster, "j2")
    *could, about = lines(cluster, "j2")
    assert could == []
    found = json.loads(about)
    assert found["ids"] == [FIRST + 2] * 6
    assert found["groups"] == []
    assert found["umask"] == 0o027
    assert "NoNewPrivs:\t1" in found["status"]
    assert (found["tmp"], found["in_tmp"]) == ("/tmp", [])
    assert found["user"] == f"frenzy-{FIRST + 2}"
    assert procfs.stat(victim).state not in "TZX"
    secrets = Path(f"/proc/{victim}/environ").read_bytes()
    assert b"NATS" not in secrets
    assert b"REDIS" not in secrets


async def test_a_later_attempt_reads_the_jobs_checkpoints(open_cluster):
    cluster = open_cluster
    agent = await cluster.agent(programs=EVERYBODYS, job_users=f"{FIRST}-{FIRST + 999}")
    first = order("j1", spec=cluster.script(VICTIM), job_number=5)
    checkpoints = agent.settings.checkpoints / "j1"
    (checkpoints / "step-0").mkdir(parents=True)  # of a time when ranks ran as root
    (checkpoints / "step-0/weights").write_text("old")
    await cluster.control.start_job("node-a", first)
    await cluster.control.seen(EvidenceKind.CHECKPOINTED)
    await cluster.control.stop_job("node-a", first)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert list((agent.settings.data_dir / "tmp").iterdir()) == []
    reader = (
        "import os\nfolder = os.environ['FRENZY_CHECKPOINT_DIR']\n"
        "print(open(folder + '/private').read(), open(folder + '/step-0/weights').read())\n"
        "open(folder + '/private', 'w').write('again')\n"
    )
    again = order("j1", attempt=2, spec=cluster.script(reader), job_number=5, resume_step=1)
    await cluster.control.start_job("node-a", again)
    exited = (await cluster.control.seen(EvidenceKind.EXITED, count=2)).outcomes[0]
    assert (exited.exit_code, exited.reason) == (0, StopReason.COMPLETED)
    assert lines(cluster, "j1", 2) == ["mine old"]
    assert checkpoints.stat().st_uid == FIRST + 5
    assert checkpoints.stat().st_mode & 0o777 == 0o750


async def test_data_that_the_jobs_user_cannot_read_is_refused_with_its_path(open_cluster):
    cluster = open_cluster
    await cluster.agent(programs=EVERYBODYS, job_users=f"{FIRST}-{FIRST + 999}")
    spec = thief(cluster, {})
    Path(spec.data.removeprefix("node:")).chmod(0o600)
    await cluster.control.push("node-a", given := order("j1", spec=spec, job_number=1))
    prepared = await cluster.control.seen(EvidenceKind.PREPARED)
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
    await cluster.control.push("node-a", go)
    refused = await cluster.control.seen(EvidenceKind.REFUSED)
    assert f"data.json is closed to user {FIRST + 1}" in refused.message


async def test_two_jobs_never_share_a_user_at_once(open_cluster):
    cluster = open_cluster
    await cluster.agent(programs=EVERYBODYS, job_users=f"{FIRST}-{FIRST + 9}")
    spec = cluster.script(VICTIM)
    await cluster.control.start_job("node-a", order("j1", spec=spec, job_number=3))
    await cluster.control.push("node-a", given := order("j2", spec=spec, ranks=EMU1, job_number=13))
    prepared = await cluster.control.seen(EvidenceKind.PREPARED, "j2")
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
    await cluster.control.push("node-a", go)
    refused = await cluster.control.seen(EvidenceKind.REFUSED, "j2")
    assert f"user {FIRST + 3} has a process that is not of this job" in refused.message


async def test_one_named_user_keeps_jobs_off_the_agent(open_cluster):
    cluster = open_cluster
    agent = await cluster.agent(programs=EVERYBODYS, job_users="nobody", job_groups="daemon")
    key = agent.settings.data_dir / "node.key"
    key.write_text("seed")
    key.chmod(0o600)
    given = order("j1", spec=thief(cluster, {"read": [str(key)], "kill": [os.getpid()]}))
    await cluster.control.start_job("node-a", given)
    await cluster.control.seen(EvidenceKind.EXITED)
    *could, about = lines(cluster, "j1")
    assert could == []
    assert json.loads(about)["user"] == "nobody"
    assert json.loads(about)["groups"] == [1]


async def test_a_folder_of_nodes_below_one_that_is_closed_is_told(open_cluster):
    closed = open_cluster.root / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(Misconfigured, match="closed to user") as caught:
        await open_cluster.agent(
            node="node-b",
            programs=EVERYBODYS,
            job_users=f"{FIRST}-{FIRST + 9}",
            checkpoints_dir=closed / "checkpoints",
        )
    assert str(closed / "checkpoints") in caught.value.message
    open_cluster.agents.clear()


@pytest.mark.parametrize(
    ("users", "groups", "said"),
    [
        ("no-such-user", "", "no user 'no-such-user'"),
        ("root", "", "must not run as root"),
        ("1000-70000", "", "is user 'nobody'"),
        ("200000-299999", "no-such-group", "no group 'no-such-group'"),
    ],
)
def test_users_that_cannot_be_are_named(users, groups, said):
    with pytest.raises(Misconfigured, match=said):
        open_job_users(users, groups)


def test_the_kernel_is_asked_as_the_user(tmp_path):
    mine = tmp_path / "mine"
    mine.touch(mode=0o600)
    assert may(RunAs(uid=0, gid=0), "-r", str(mine))
    assert not may(RunAs(uid=FIRST, gid=FIRST), "-r", str(mine))
    assert may(RunAs(uid=FIRST, gid=FIRST), "-r", "/etc/passwd")


def test_without_root_it_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Misconfigured, match="runs as root"):
        open_job_users("200000-299999", "")


async def test_one_user_per_job_is_the_same_for_all_ranks_and_asks_for_a_number(open_cluster):
    cluster = open_cluster
    await cluster.agent(programs=EVERYBODYS, job_users=f"{FIRST}-{FIRST + 999}")
    await cluster.control.push("node-a", given := order("j1", spec=cluster.script("pass")))
    prepared = await cluster.control.seen(EvidenceKind.PREPARED)
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
    await cluster.control.push("node-a", go)
    refused = await cluster.control.seen(EvidenceKind.REFUSED)
    assert "numbers jobs: upgrade it" in refused.message
    await eventually(lambda: cluster.control.evidence(EvidenceKind.CLEAN))
