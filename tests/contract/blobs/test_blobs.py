"""What every blob store does."""

import asyncio
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.blobs import BlobRoutes

from frenzy_shared.blobs.digest import digest_of
from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.blobs.http import HttpBlobStore
from frenzy_shared.blobs.open import open_blob_store
from frenzy_shared.blobs.port import BlobStore
from frenzy_shared.errors import (
    BadRequest,
    BlobCorrupt,
    BlobMissing,
    Misconfigured,
    StorageFull,
    Unauthenticated,
    Unavailable,
)

CONTENT = os.urandom(3 * 1024**2 + 17)
DIGEST = digest_of(CONTENT)
ABSENT = "sha256:" + "0" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(params=["directory", "http"])
def store(request: pytest.FixtureRequest, root: Path) -> BlobStore:
    if request.param == "directory":
        return DirectoryBlobStore(root)
    return over_http(BlobRoutes(root, "secret"))


def over_http(routes: BlobRoutes, token: str = "secret") -> HttpBlobStore:
    return HttpBlobStore(
        "http://gateway", token, transport=httpx.ASGITransport(routes), pauses_s=()
    )


async def pieces(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def read(store: BlobStore, digest: str) -> bytes:
    return b"".join([chunk async for chunk in store.open(digest)])


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_what_is_put_comes_back(store: BlobStore, tmp_path: Path) -> None:
    assert await store.put(pieces(CONTENT)) == DIGEST
    assert await read(store, DIGEST) == CONTENT
    assert await store.exists(DIGEST)
    assert await store.size(DIGEST) == len(CONTENT)
    await store.fetch(DIGEST, tmp_path / "new" / "file")
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT


async def test_a_file_is_put(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert await store.put_file(tmp_path / "file") == DIGEST
    assert await store.put_file(tmp_path / "file") == DIGEST
    assert await read(store, DIGEST) == CONTENT


async def test_an_empty_blob_is_a_blob(store: BlobStore) -> None:
    digest = await store.put(pieces(b""))
    assert digest == digest_of(b"")
    assert await read(store, digest) == b""
    assert await store.size(digest) == 0


async def test_equal_content_is_stored_once(store: BlobStore, root: Path) -> None:
    await asyncio.gather(*(store.put(pieces(CONTENT)) for _ in range(4)))
    assert len(files(root)) == 1


async def test_other_content_than_expected_is_refused(store: BlobStore, root: Path) -> None:
    with pytest.raises(BlobCorrupt):
        await store.put(pieces(b"other"), expected=DIGEST)
    assert files(root) == []
    assert await store.put(pieces(CONTENT), expected=DIGEST) == DIGEST


async def test_what_is_absent_is_missing(store: BlobStore, tmp_path: Path) -> None:
    assert not await store.exists(ABSENT)
    with pytest.raises(BlobMissing):
        await read(store, ABSENT)
    with pytest.raises(BlobMissing):
        await store.size(ABSENT)
    with pytest.raises(BlobMissing):
        await store.fetch(ABSENT, tmp_path / "file")
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256:",
        "sha256:" + "A" * 64,
        "sha256:../../etc/passwd",
        "md5:" + "0" * 32,
        pytest.param(DIGEST + "\n", id="a line end"),
    ],
)
async def test_what_is_no_digest_is_refused(store: BlobStore, digest: str) -> None:
    with pytest.raises(BadRequest):
        await store.exists(digest)
    with pytest.raises(BadRequest):
        await read(store, digest)
    with pytest.raises(BadRequest):
        await store.put(pieces(b"x"), expected=digest)


async def test_damage_is_noticed(store: BlobStore, root: Path, tmp_path: Path) -> None:
    await store.put(pieces(CONTENT))
    [path] = files(root)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(BlobCorrupt):
        await store.fetch(DIGEST, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    with pytest.raises(BlobCorrupt):
        await read(store, DIGEST)


async def test_a_broken_upload_leaves_nothing(store: BlobStore, root: Path) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.put(breaking())
    assert files(root) == []


async def test_a_full_disk_says_so_and_leaves_nothing(
    store: BlobStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("frenzy_shared.blobs.files.os.fsync", full)
    with pytest.raises(StorageFull, match="full"):
        await store.put(pieces(CONTENT))
    assert files(root) == []
    monkeypatch.undo()
    assert await store.put(pieces(CONTENT)) == DIGEST


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root; ENOSPC is simulated above")
async def test_a_really_full_disk(small_disk: Path) -> None:
    store = DirectoryBlobStore(small_disk)
    kept = await store.put(pieces(CONTENT[:500_000]))
    with pytest.raises(StorageFull) as caught:
        await store.put(pieces(CONTENT))
    assert str(small_disk) in caught.value.suggestions[0]
    assert await read(store, kept) == CONTENT[:500_000]
    assert len(files(small_disk)) == 1


# -- HTTP only --------------------------------------------------------------------------------


async def test_what_the_gateway_has_is_not_sent_again(root: Path, tmp_path: Path) -> None:
    routes = BlobRoutes(root, "secret")
    (tmp_path / "file").write_bytes(CONTENT)
    await over_http(routes).put_file(tmp_path / "file")
    await over_http(routes).put_file(tmp_path / "file")
    assert routes.requests.count("PUT") == 1


async def test_a_wrong_token_is_refused(root: Path) -> None:
    store = over_http(BlobRoutes(root, "secret"), token="wrong")
    with pytest.raises(Unauthenticated):
        await store.put(pieces(CONTENT))


class Flaky(httpx.AsyncBaseTransport):
    """Fails a few times, each time in another way, then works."""

    def __init__(self, inner: httpx.AsyncBaseTransport, failures: int) -> None:
        self.inner = inner
        self.failures = failures

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.failures:
            self.failures -= 1
            if self.failures % 2:
                raise httpx.ConnectError("refused")
            return httpx.Response(503, request=request)
        return await self.inner.handle_async_request(request)


async def test_lost_connections_and_overload_are_tried_again(root: Path) -> None:
    flaky = Flaky(httpx.ASGITransport(BlobRoutes(root, "secret")), 2)
    store = HttpBlobStore("http://gateway/", "secret", transport=flaky, pauses_s=(0.0, 0.0))
    assert await store.put(pieces(CONTENT)) == DIGEST
    flaky.failures = 2
    assert await read(store, DIGEST) == CONTENT
    flaky.failures = 99
    with pytest.raises(Unavailable):
        await store.exists(DIGEST)
    with pytest.raises(Unavailable):
        await read(store, DIGEST)


class Torn(httpx.AsyncByteStream):
    def __init__(self, content: bytes, fails: bool) -> None:
        self.content = content
        self.fails = fails

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content
        if self.fails:
            raise httpx.ReadError("reset")


async def test_a_download_torn_in_the_middle_is_completed() -> None:
    lengths = iter([(1_000_000, True), (2_500_000, True), (len(CONTENT), False)])

    async def answer(request: httpx.Request) -> httpx.Response:
        length, fails = next(lengths)
        return httpx.Response(200, stream=Torn(CONTENT[:length], fails))

    transport = httpx.MockTransport(answer)
    store = HttpBlobStore("http://gateway", transport=transport, pauses_s=(0.0, 0.0))
    assert await read(store, DIGEST) == CONTENT


# -- choosing ---------------------------------------------------------------------------------


def test_a_location_chooses_the_store(tmp_path: Path) -> None:
    assert isinstance(open_blob_store(str(tmp_path)), DirectoryBlobStore)
    assert isinstance(open_blob_store(f"file://{tmp_path}"), DirectoryBlobStore)
    assert isinstance(open_blob_store("https://gateway", "token"), HttpBlobStore)


@pytest.mark.parametrize("location", ["", "relative/path", "s3://bucket", "file://relative"])
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(Misconfigured, match="neither"):
        open_blob_store(location)
