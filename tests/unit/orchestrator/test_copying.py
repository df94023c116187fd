"""A work folder is copied within limits, or what is wrong with it is named."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from frenzy_orchestrator.adapters.copying import copy_in_child
from frenzy_orchestrator.adapters.folders import copy_folder
from frenzy_shared.errors import InvalidSpec, PayloadTooLarge


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "a.txt").write_text("text")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    return folder


def test_files_folders_and_inner_links_are_copied(source, tmp_path):
    (source / "link").symlink_to("deep/er")
    (source / ".git").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "left over").touch()
    copy_folder(source, target)
    assert sorted(path.name for path in target.iterdir()) == ["deep", "link", "run.sh"]
    assert (target / "link" / "a.txt").read_text() == "text"
    assert (target / "link").is_symlink()
    assert os.access(target / "run.sh", os.X_OK)


def test_a_pipe_is_refused_by_name(source, tmp_path):
    os.mkfifo(source / "deep" / "pipe")
    with pytest.raises(InvalidSpec, match="deep/pipe is a device, a pipe or a socket"):
        copy_folder(source, tmp_path / "target")


def test_a_socket_is_refused_by_name(source, tmp_path, monkeypatch):
    monkeypatch.chdir(source)  # the path of a socket has a short limit
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("s")
        with pytest.raises(InvalidSpec, match="source/s is a device"):
            copy_folder(source, tmp_path / "target")


@pytest.mark.parametrize("leads_to", ["/etc", "../elsewhere", "deep/../../x", "link"])
def test_links_that_lead_out_or_nowhere_are_refused(source, tmp_path, leads_to):
    (source / "link").symlink_to(leads_to)
    with pytest.raises(InvalidSpec, match="source/link is a link that leads"):
        copy_folder(source, tmp_path / "target")


def test_limits_hold(source, tmp_path):
    with pytest.raises(PayloadTooLarge, match="more than 3 entries"):
        copy_folder(source, tmp_path / "a", max_entries=3)
    with pytest.raises(PayloadTooLarge, match="larger than 13 bytes"):
        copy_folder(source, tmp_path / "b", max_bytes=13)
    copy_folder(source, tmp_path / "c", max_entries=4, max_bytes=14)


def test_a_folder_is_not_copied_into_itself(source):
    with pytest.raises(InvalidSpec, match="own folder"):
        copy_folder(source, source / "deep" / "work")


async def test_the_child_copies_and_tells_what_is_wrong(source, tmp_path):
    await copy_in_child(source, tmp_path / "target")
    assert (tmp_path / "target" / "deep" / "er" / "a.txt").read_text() == "text"
    os.mkfifo(source / "pipe")
    with pytest.raises(InvalidSpec, match="source/pipe is a device"):
        await copy_in_child(source, tmp_path / "again")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        await copy_in_child(source / "deep", tmp_path / "file" / "under")


async def test_a_copy_that_hangs_is_killed_when_it_is_given_up(source, tmp_path, monkeypatch):
    hung = tmp_path / "python"
    hung.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    hung.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(hung))
    copying = asyncio.ensure_future(copy_in_child(source, tmp_path / "target"))
    async with asyncio.timeout(20):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_child_imports_no_event_loop():
    """One is started for every attempt: it took half of its time to start."""
    code = "import sys, frenzy_orchestrator.adapters.folders; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "tarfile"} & set(ran.stdout.split())
