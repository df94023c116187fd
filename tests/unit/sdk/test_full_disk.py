"""When nats-server must be started again after its disk was full."""

from collections import namedtuple

import pytest

from frenzy.local import fulldisk
from frenzy.local.fulldisk import FullDisk
from frenzy_shared.units import GIB

FAILED = "[ERR] JetStream failed to store a msg: write 3.blk: no space left on device\n"


@pytest.fixture
def free(monkeypatch):
    """Free bytes of the disk: ``free["bytes"]``."""
    usage, free = namedtuple("usage", "free"), {"bytes": GIB}
    monkeypatch.setattr(fulldisk.shutil, "disk_usage", lambda _: usage(free["bytes"]))
    return free


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "nats.log"
    path.write_text(f"of an earlier server: {FAILED}")
    return path


def say(log, text):
    with log.open("a") as file:
        file.write(text)


def test_it_is_over_once_when_there_is_space_again(log, free):
    disk = FullDisk(log, log.parent)
    assert not disk.is_over()
    free["bytes"] = 0
    say(log, FAILED)
    assert not disk.is_over()
    assert not disk.is_over()
    free["bytes"] = GIB
    assert disk.is_over()
    assert not disk.is_over()


def test_words_that_come_in_two_parts_count_and_once_only(log, free):
    disk = FullDisk(log, log.parent)
    say(log, FAILED[:-10])
    assert not disk.is_over()
    say(log, FAILED[-10:])
    assert disk.is_over()
    say(log, "[INF] Server is ready\n")
    assert not disk.is_over()


def test_a_log_that_was_cut_is_read_from_its_end(log, free):
    disk = FullDisk(log, log.parent)
    log.write_text("")
    assert not disk.is_over()
    say(log, FAILED)
    assert disk.is_over()
