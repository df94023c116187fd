"""Which blobs go, and when: never one that a job names, or that somebody asked for."""

import os
import time
from pathlib import Path

import pytest
from tests.support.state import move, submission

from frenzy_gateway.collection import Collection
from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.state.memory import MemoryStore

DAY_S = 86_400


class World:
    """A store, blobs, and what collects them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = DirectoryBlobStore(root)
        self.state = MemoryStore()
        self.collection = Collection(state=self.state, blobs=self.blobs, keep_s=DAY_S)

    async def blob(self, content: bytes, age_s: float = 2 * DAY_S) -> str:
        async def chunks():
            yield content

        digest = await self.blobs.put(chunks())
        self.age(digest, age_s)
        return digest

    def age(self, digest: str, age_s: float = 2 * DAY_S) -> None:
        name = digest.removeprefix("sha256:")
        then = time.time() - age_s
        os.utime(self.root / "sha256" / name[:2] / name, (then, then))

    async def job(self, job: str, **spec: object) -> None:
        assert (await self.state.submit(job, submission(job, spec=spec))).ok

    async def stored(self, *digests: str) -> list[bool]:
        names = [digest.removeprefix("sha256:") for digest in digests]
        return [(self.root / "sha256" / name[:2] / name).exists() for name in names]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "blobs")


async def test_what_no_job_names_goes_at_the_second_look(world):
    lost, data = await world.blob(b"lost"), await world.blob(b"data")
    bundle, script = await world.blob(b"bundle"), await world.blob(b"script")
    await world.job("j1", data=f"blob:{data}", workdir=f"blob:{bundle}")
    await world.job("j2", deep={"er": [f"blob:{script}"]})
    await move(world.state, "j1", "FAILED")
    assert await world.collection.look() == 0
    assert await world.stored(lost) == [True]
    assert await world.collection.look() == 1
    assert await world.stored(lost, data, bundle, script) == [False, True, True, True]


async def test_a_forgotten_job_s_blobs_go(world):
    data = await world.blob(b"data")
    await world.job("j1", data=f"blob:{data}")
    await move(world.state, "j1", "FAILED")
    await world.collection.look()
    record = await world.state.job("j1")
    await world.state.forget("j1", version=record.version)
    assert [await world.collection.look() for _ in range(2)] == [0, 1]


async def test_a_blob_that_somebody_asked_for_stays(world):
    young = await world.blob(b"young", age_s=0)
    asked = await world.blob(b"asked")
    await world.collection.look()
    assert await world.blobs.exists(asked)
    for _ in range(2):
        assert await world.collection.look() == 0
    assert await world.stored(young, asked) == [True, True]


async def test_a_blob_asked_for_at_the_last_moment_stays(world):
    asked = await world.blob(b"asked")
    assert not await world.blobs.remove(asked, unused_s=3 * DAY_S)
    assert await world.blobs.remove(asked, unused_s=DAY_S)


async def test_in_safe_mode_nothing_goes_and_looks_begin_anew(world):
    lost = await world.blob(b"lost")
    await world.collection.look()
    await world.state.enter_safe_mode("an old copy")
    assert await world.collection.look() == 0
    world.state._tables.safe_mode = ""
    assert [await world.collection.look() for _ in range(2)] == [0, 1]
    assert await world.stored(lost) == [False]


async def test_what_dead_writers_left_goes(world):
    old, new = world.root / "incoming/.tmp-blob-1", world.root / "incoming/.tmp-blob-2"
    old.parent.mkdir(parents=True)
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    await world.collection.look()
    assert (old.exists(), new.exists()) == (False, True)
