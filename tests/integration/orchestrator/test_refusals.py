"""What a node refuses, why, and that nothing of it stays."""

import asyncio
import errno
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.agent import eventually, order, script_spec

from frenzy_orchestrator.adapters import copying, preparation
from frenzy_orchestrator.shim import files
from frenzy_shared.blobs import bundle
from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages.v1 import EvidenceKind, Phase, RankAssignment

GONE = "blob:sha256:" + "0" * 64


async def refused(cluster, spec, **fields):
    """Order an attempt and return the refusal; CLEAN must follow it."""
    await cluster.control.push("node-a", order(spec=spec, **fields))
    told = await cluster.control.seen(EvidenceKind.REFUSED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    return told


def packed(path):
    target = path.with_name(f"{path.name}.bundle")
    bundle.pack(path, target)
    return target


def with_data(spec, reference):
    return spec.model_copy(update={"data": reference})


async def test_missing_data_names_the_path(cluster, tmp_path):
    await cluster.agent()
    told = await refused(cluster, with_data(cluster.script("pass"), f"node:{tmp_path}/no/such.txt"))
    assert told.reason == StopReason.DATA_ERROR
    assert f"{tmp_path}/no/such.txt does not exist" in told.message


async def test_empty_data_is_refused(cluster, tmp_path):
    await cluster.agent()
    (tmp_path / "empty.txt").touch()
    told = await refused(cluster, with_data(cluster.script("pass"), f"node:{tmp_path}/empty.txt"))
    assert told.reason == StopReason.DATA_ERROR
    assert "is empty" in told.message


async def test_an_unknown_blob_is_a_data_error(cluster):
    await cluster.agent()
    told = await refused(cluster, with_data(cluster.script("pass"), GONE))
    assert told.reason == StopReason.DATA_ERROR
    assert "sha256:0000" in told.message


async def test_a_blob_with_other_content_is_refused(cluster, tmp_path):
    agent = await cluster.agent()
    (tmp_path / "text.txt").write_text("hello")
    store = DirectoryBlobStore(agent.settings.data_dir / "blobs")
    digest = await store.put_file(packed(tmp_path / "text.txt"))
    stored = next((agent.settings.data_dir / "blobs" / "sha256").glob("*/*"))
    stored.chmod(0o600)
    stored.write_bytes(stored.read_bytes() + b"x")
    told = await refused(cluster, with_data(cluster.script("pass"), f"blob:{digest}"))
    assert told.reason == StopReason.DATA_ERROR
    assert digest in told.message


async def test_a_blob_that_is_no_bundle_is_refused(cluster, tmp_path):
    agent = await cluster.agent()
    (tmp_path / "raw").write_text("not a bundle")
    store = DirectoryBlobStore(agent.settings.data_dir / "blobs")
    digest = await store.put_file(tmp_path / "raw")
    told = await refused(cluster, with_data(cluster.script("pass"), f"blob:{digest}"))
    assert told.reason == StopReason.DATA_ERROR


async def test_bundles_reach_the_ranks(cluster, tmp_path):
    agent = await cluster.agent()
    store = DirectoryBlobStore(agent.settings.data_dir / "blobs")
    (tmp_path / "text.txt").write_text("some text")
    data = await store.put_file(packed(tmp_path / "text.txt"))
    work = tmp_path / "project"
    work.mkdir()
    (work / "train.py").write_text("import os; print(open(os.environ['FRENZY_DATA']).read())")
    code = await store.put_file(packed(work))
    spec = cluster.script("pass", name="train.py").model_copy(
        update={"data": f"blob:{data}", "workdir": f"blob:{code}"}
    )
    await cluster.control.start_job("node-a", order(spec=spec))
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert [line.text for line in cluster.control.lines()] == ["some text"]


async def test_a_missing_script_is_named(cluster, tmp_path):
    await cluster.agent()
    spec = cluster.script("pass", name="other.py")
    spec = spec.model_copy(
        update={"entrypoint": spec.entrypoint.model_copy(update={"script": "job.py"})}
    )
    told = await refused(cluster, spec)
    assert "there is no job.py in workdir" in told.message


async def test_a_work_folder_of_devices_and_links_is_refused(cluster):
    await cluster.agent()
    told = await refused(cluster, script_spec(Path("/proc")))
    assert told.reason == StopReason.DATA_ERROR
    assert "workdir: /proc" in told.message


@pytest.mark.parametrize("blocked", ["copy", "check"])
async def test_inputs_that_block_cost_neither_heartbeats_nor_the_agents_end(
    cluster, monkeypatch, tmp_path, blocked
):
    agent = await cluster.agent()
    hung, free = tmp_path / "hung", threading.Event()
    if blocked == "copy":
        hung.write_text("#!/bin/sh\nexec sleep 600\n")
        hung.chmod(0o755)
        monkeypatch.setattr(copying, "sys", SimpleNamespace(executable=str(hung)))
    else:
        monkeypatch.setattr(preparation, "_check_readable", lambda *_: free.wait())
    spec = with_data(cluster.script("pass"), f"node:{__file__}")
    workers = min(32, (os.cpu_count() or 1) + 4)  # of the event loop's own pool
    given = [order(f"j{number}", spec=spec) for number in range(workers + 1)]
    await cluster.control.push("node-a", *given)
    await eventually(lambda: len(cluster.control.heartbeats[-1].attempts) == len(given))
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    await cluster.control.stop_job("node-a", given[0])
    await cluster.control.seen(EvidenceKind.CLEAN, "j0")
    async with asyncio.timeout(10):
        await agent.leave()
        await asyncio.get_running_loop().shutdown_default_executor()
    free.set()


async def test_heartbeats_go_on_when_the_event_loops_pool_is_lost(cluster):
    await cluster.agent()
    free, loop = threading.Event(), asyncio.get_running_loop()
    lost = [loop.run_in_executor(None, free.wait) for _ in range((os.cpu_count() or 1) + 4)]
    beats = len(cluster.control.heartbeats)
    try:
        await eventually(lambda: len(cluster.control.heartbeats) > beats + 2, timeout_s=5)
    finally:
        free.set()
        await asyncio.gather(*lost)


async def test_a_missing_checkpoint_is_refused(cluster):
    await cluster.agent()
    told = await refused(cluster, cluster.script("pass"), resume_step=7)
    assert told.reason == StopReason.CHECKPOINT_ERROR
    assert "step-7" in told.message


async def test_an_unknown_device_is_refused(cluster):
    await cluster.agent()
    ranks = (RankAssignment(rank=0, local_rank=0, device="emu9"),)
    told = await refused(cluster, cluster.script("pass"), ranks=ranks)
    assert told.reason == StopReason.LAUNCH_REFUSED
    assert "emu9" in told.message


async def test_too_little_disk_space_is_told_with_numbers(cluster):
    agent = await cluster.agent(min_free_bytes=2**60)
    told = await refused(cluster, cluster.script("pass"))
    assert told.reason == StopReason.LAUNCH_REFUSED
    assert str(agent.settings.data_dir) in told.message
    assert "are needed" in told.message


async def test_a_disk_that_filled_while_a_job_ran_is_not_told_as_the_users_mistake(
    cluster, monkeypatch, tmp_path
):
    await cluster.agent(min_free_bytes=1024**2)
    script = (
        f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    )
    given = order(spec=cluster.script(f"{script}\nraise SystemExit(1)"))
    await cluster.control.start_job("node-a", given)
    usage = SimpleNamespace(total=2**40, used=2**40, free=4096)
    monkeypatch.setattr(preparation.shutil, "disk_usage", lambda _: usage)
    (tmp_path / "go").touch()
    told = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert told.outcomes[0].reason is StopReason.CHECKPOINT_ERROR
    assert told.outcomes[0].message.startswith("the disk of node-a is full (4")
    assert told.outcomes[0].message.endswith("rank 0 exited with code 1")


async def test_go_without_prepare_is_refused(cluster):
    await cluster.agent()
    given = order(spec=cluster.script("pass"), phase=Phase.GO, rendezvous="127.0.1.1:20000")
    await cluster.control.push("node-a", given)
    told = await cluster.control.seen(EvidenceKind.REFUSED)
    assert "not prepared" in told.message


async def test_every_port_in_use_is_told(cluster):
    with socket.socket() as taken:
        taken.bind(("127.0.1.1", 0))
        port = taken.getsockname()[1]
        await cluster.agent(rendezvous_ports=f"{port}-{port}")
        told = await refused(cluster, cluster.script("pass"))
    assert told.reason == StopReason.LAUNCH_REFUSED
    assert "rendezvous port" in told.message


async def test_two_attempts_never_get_one_port(cluster):
    agent = await cluster.agent(rendezvous_ports="23456-23456")
    spec = cluster.script("pass")
    await cluster.control.push("node-a", order("j1", spec=spec))
    first = await cluster.control.seen(EvidenceKind.PREPARED, "j1")
    second = (RankAssignment(rank=0, local_rank=0, device="emu1"),)
    await cluster.control.push("node-a", order("j2", spec=spec, ranks=second))
    told = await cluster.control.seen(EvidenceKind.REFUSED, "j2")
    assert first.rendezvous == "127.0.1.1:23456"
    assert "rendezvous port" in told.message
    assert agent.agent.epoch == 1


async def test_a_full_disk_refuses_new_attempts_and_keeps_running_ones(cluster, monkeypatch):
    agent = await cluster.agent()
    given = order("j1", spec=cluster.script("import time\nwhile True: time.sleep(0.1)"))
    await cluster.control.start_job("node-a", given)
    original, disk = files.write_atomically, threading.Event()  # set: full

    def full(path, data, *, durable=True):
        if durable and agent.settings.data_dir in path.parents and disk.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        original(path, data, durable=durable)

    disk.set()
    monkeypatch.setattr(files, "write_atomically", full)
    await cluster.control.push("node-a", order("j2", spec=cluster.script("pass")))
    told = await cluster.control.seen(EvidenceKind.REFUSED, "j2")
    await cluster.control.seen(EvidenceKind.CLEAN, "j2")
    assert "no space left" in told.message
    assert not agent.folder("j2").exists()
    assert agent.living(), "the running attempt is not touched"

    await cluster.control.stop_job("node-a", given)
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 1)
    disk.clear()
    await cluster.control.seen(EvidenceKind.CLEAN, "j1")


async def test_an_unreachable_blob_store_is_waited_for(cluster, monkeypatch):
    monkeypatch.setattr(preparation, "_RETRY_S", 0.05)
    agent = await cluster.agent(blobs="http://127.0.0.1:1")
    given = order(spec=with_data(cluster.script("pass"), GONE))
    await cluster.control.push("node-a", given)
    await eventually(lambda: agent.folder().exists())
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    assert cluster.control.evidence() == []
    await cluster.control.stop_job("node-a", given)
    await cluster.control.seen(EvidenceKind.CLEAN)


@pytest.mark.parametrize("output", ["stdout", "stderr"])
async def test_a_flood_of_output_ends_the_attempt_within_its_quota(cluster, output):
    agent = await cluster.agent(log_quota_bytes=256 * 1024)
    script = f"import sys\nwhile True: sys.{output}.write('y' * 100 + chr(10))\n"
    await cluster.control.push("node-a", given := order(spec=cluster.script(script)))
    prepared = await cluster.control.seen(EvidenceKind.PREPARED)
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
    await cluster.control.push("node-a", go)
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert exited.outcomes[0].reason is StopReason.LOG_QUOTA_EXCEEDED
    lines = cluster.control.lines()
    assert "wrote more than 256 KiB" in lines[-1].text
    assert sum(len(line.text) for line in lines) < 400 * 1024
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert (agent.folder() / "ranks/0" / f"{output}.log").stat().st_size <= 256 * 1024
    assert agent.living() == []


async def test_heartbeats_keep_time_while_ranks_flood(cluster):
    await cluster.agent()
    script = "while True: print('z' * 200)\n"
    ranks = tuple(RankAssignment(rank=r, local_rank=r, device=f"emu{r}") for r in (0, 1))
    await cluster.control.start_job("node-a", order(spec=cluster.script(script), ranks=ranks))
    before = len(cluster.control.heartbeats)
    await asyncio.sleep(2)
    beats = len(cluster.control.heartbeats) - before
    assert beats >= 5, "of 10 at 0.2 s, on a loaded machine"
    assert len(cluster.control.lines(rank=0)) > 1000
    assert len(cluster.control.lines(rank=1)) > 1000
