"""Backups of a store that is being written, put back: whole, closed until somebody reconciles."""

import asyncio
import json
import shutil
import threading
from pathlib import Path

import pytest
import redis
from tests.support.state import submission
from tests.support.valkey import ValkeyProcess

from frenzy.local import appendonly, credentials
from frenzy.local.backup import Backup, back_up
from frenzy.local.layout import Layout
from frenzy.local.processes import ProcessMark
from frenzy.local.restoring import restore
from frenzy.local.status import ChildStatus, Phase, Status, hold
from frenzy_shared.errors import FrenzyError, InvalidState, Misconfigured, Unavailable
from frenzy_shared.files import write_private
from frenzy_shared.state.redis import RedisStore

KEYS = ("a" * 64, "b" * 64)


@pytest.fixture
def here(tmp_path):
    """A cluster's folder, as `frenzy up` leaves it; only its store runs."""
    layout = Layout(tmp_path / "here")
    layout.create()
    credentials.load_or_make(layout)
    write_private(layout.secrets_key, f"{KEYS[0]}\n")
    write_private(layout.bus_users, json.dumps({"identities": [], "invitations": []}))
    (layout.blobs / "sha256" / "ab").mkdir(parents=True)
    (layout.blobs / "sha256" / "ab" / "cd").write_bytes(b"data")
    (layout.blobs / "incoming").mkdir()
    (layout.blobs / "incoming" / ".tmp-x").write_bytes(b"half")
    return layout


@pytest.fixture
def server(here):
    folder = here.server("valkey")
    folder.mkdir()
    process = ValkeyProcess(folder).start()
    yield process
    process.stop()


@pytest.fixture
def there(tmp_path):
    return Layout(tmp_path / "there")


def quiet(_):
    """Tell nobody."""


async def jobs_of(layout: Layout) -> tuple[set[str], str]:
    """What a server says that starts on a layout's files: its jobs, and why it is closed."""
    process = ValkeyProcess(layout.server("valkey")).start()
    try:
        store = await RedisStore.open(process.url)
        page = await store.list_jobs(
            project=None, states=frozenset(), page_size=1000, page_token="", labels={}
        )
        safe_mode = (await store.health()).safe_mode
        await store.close()
        return {job.id for job in page.jobs}, safe_mode
    finally:
        process.stop()


async def test_a_backup_under_load_has_all_that_was_answered_before_it(
    here, server, there, tmp_path
):
    store = await RedisStore.open(server.url)
    await store.submit("first", submission("first"))
    stop = threading.Event()

    def write():
        with server.client() as client:
            number = 0
            while not stop.is_set():
                number += 1
                client.set(f"{{frenzy}}:load:{number % 500}", "x" * 200)
                if number % 300 == 0:  # its files are replaced again and again meanwhile
                    try:
                        client.bgrewriteaof()
                    except redis.exceptions.ResponseError:
                        continue

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [back_up(here, tmp_path / f"b{n}", quiet, blobs=True) for n in range(3)]
    finally:
        stop.set()
        writer.join()
    await store.close()
    for number, about in enumerate(made):
        target = Layout(there.root / str(number))
        assert Backup.read(tmp_path / f"b{number}") == about
        await asyncio.to_thread(restore, target, tmp_path / f"b{number}", quiet)
        jobs, safe_mode = await jobs_of(target)
        assert jobs == {"first"}
        assert about.created in safe_mode
        assert "frenzy admin reconcile" in safe_mode


def test_all_that_a_new_machine_needs_comes_with_it(here, server, there, tmp_path):
    back_up(here, tmp_path / "b", quiet, blobs=True)
    assert restore(there, tmp_path / "b", quiet) is None
    assert credentials.load_or_make(there) == credentials.load_or_make(here)
    assert there.secrets_key.read_text() == f"{KEYS[0]}\n"
    assert there.bus_users.read_text() == here.bus_users.read_text()
    blobs = [path.name for path in there.blobs.rglob("*") if path.is_file()]
    assert blobs == ["cd"]
    assert (tmp_path / "b").stat().st_mode & 0o077 == 0
    for private in (there.secrets, there.secrets_key, there.bus_users):
        assert private.stat().st_mode & 0o077 == 0


def test_what_is_here_and_newer_stays(here, server, there, tmp_path):
    back_up(here, tmp_path / "b", quiet, blobs=False)
    there.create()
    own = credentials.load_or_make(there)
    write_private(there.secrets_key, f"{KEYS[1]}\n")
    write_private(there.bus_users, "newer")
    restore(there, tmp_path / "b", quiet)
    assert credentials.load_or_make(there) == own
    assert there.bus_users.read_text() == "newer"
    # The first key seals, all open: also what was sealed when the backup was made.
    assert there.secrets_key.read_text().split() == [KEYS[1], KEYS[0]]


async def test_the_store_that_was_here_is_kept_aside(here, server, tmp_path):
    back_up(here, tmp_path / "b", quiet, blobs=False)
    store = await RedisStore.open(server.url)
    await store.submit("later", submission("later"))
    await store.close()
    server.stop()
    aside = await asyncio.to_thread(restore, here, tmp_path / "b", quiet)
    assert (aside / appendonly.FOLDER).is_dir()
    assert (await jobs_of(here))[0] == set()
    shutil.rmtree(here.server("valkey"))
    aside.rename(here.server("valkey"))
    assert (await jobs_of(here))[0] == {"later"}


def test_a_copy_that_the_server_cannot_read_changes_nothing(here, server, tmp_path):
    back_up(here, tmp_path / "b", quiet, blobs=False)
    server.stop()
    folder = tmp_path / "b" / appendonly.FOLDER
    (base,) = folder.glob("*.base.rdb")
    base.write_bytes(b"REDIS0011" + b"\xff" * 64)
    before = {path: path.read_bytes() for path in here.server("valkey").rglob("*.*.*")}
    with pytest.raises(Misconfigured, match="changed or damaged"):
        restore(here, tmp_path / "b", quiet)
    about = json.loads((tmp_path / "b" / "backup.json").read_text())
    about["store"] = appendonly.copy(folder, tmp_path / "again")
    (tmp_path / "b" / "backup.json").write_text(json.dumps(about))
    with pytest.raises(Unavailable, match="the store's server"):
        restore(here, tmp_path / "b", quiet)
    assert {path: path.read_bytes() for path in before} == before


def test_it_is_refused_where_frenzy_runs(here, server, tmp_path):
    back_up(here, tmp_path / "b", quiet, blobs=False)
    for lock in (here.lock, here.up_lock):
        with hold(lock), pytest.raises(InvalidState, match="Frenzy runs in") as refused:
            restore(here, tmp_path / "b", quiet)
        assert refused.value.suggestions == ("stop it first: frenzy down",)
    left = ChildStatus(name="valkey", mark=ProcessMark.of(server.pid), restarts=0, last_exit=None)
    Status(phase=Phase.READY, detail="", url="", supervisor=None, children=(left,)).write(
        here.status
    )
    with pytest.raises(InvalidState, match="Frenzy runs in"):  # its supervisor was killed
        restore(here, tmp_path / "b", quiet)


@pytest.mark.parametrize("number", range(4))
def test_what_is_no_backup_is_said(here, server, there, tmp_path, number):
    folder = tmp_path / "b"
    back_up(here, folder, quiet, blobs=False)
    about = folder / "backup.json"
    cases = (
        (about.unlink, "no finished backup"),
        (lambda: about.write_text('{"format": 9, "frenzy": "7.0"}'), "made by Frenzy 7.0"),
        (lambda: about.write_text('{"format": 1}'), "damaged"),
        (lambda: next((folder / appendonly.FOLDER).glob("*.incr.*")).unlink(), "No such file"),
    )
    damage, says = cases[number]
    damage()
    with pytest.raises(FrenzyError, match=says):
        restore(there, folder, quiet)
    assert not there.server("valkey").exists()


def test_nothing_is_overwritten_and_nothing_is_backed_up_from_nowhere(
    here, server, there, tmp_path
):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(InvalidState, match="is not empty"):
        back_up(here, tmp_path / "full", quiet, blobs=False)
    with pytest.raises(InvalidState, match="nothing to back up"):
        back_up(there, tmp_path / "b", quiet, blobs=False)
    with pytest.raises(Misconfigured, match="cannot write"):
        back_up(here, Path("/proc/nothing"), quiet, blobs=False)
