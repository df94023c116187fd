import asyncio
import hashlib

import pytest

from frenzy_gateway.settings import GatewaySettings
from frenzy_shared.errors import StorageFull

CONTENT = b"some text to train on" * 1000
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
OTHER = "sha256:" + "0" * 64


def path(digest=DIGEST):
    return f"/api/v1/blobs/{digest}"


@pytest.fixture
def settings() -> GatewaySettings:
    return GatewaySettings(max_blob_bytes=100_000, receive_timeout_s=0.2)


def stored(gateway):
    root = gateway.blobs._root
    return [file for file in root.rglob("*") if file.is_file()]


async def test_a_blob_comes_back_as_it_went(admin):
    assert (await admin.head(path())).status_code == 404
    response = await admin.put(path(), content=CONTENT)
    assert (response.status_code, response.json()) == (
        201,
        {"digest": DIGEST, "size_bytes": len(CONTENT)},
    )
    assert (await admin.put(path(), content=CONTENT)).status_code == 201
    head = await admin.head(path())
    assert (head.status_code, head.headers["content-length"], head.content) == (
        200,
        str(len(CONTENT)),
        b"",
    )
    found = await admin.get(path())
    assert found.content == CONTENT
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-disposition"] == "attachment"


async def test_an_empty_blob_is_a_blob(admin):
    digest = "sha256:" + hashlib.sha256(b"").hexdigest()
    assert (await admin.put(path(digest), content=b"")).status_code == 201
    assert (await admin.get(path(digest))).content == b""


async def test_other_content_than_announced_is_refused_and_not_kept(gateway, admin, problem):
    problem(await admin.put(path(OTHER), content=CONTENT), 422, "blob_corrupt")
    assert stored(gateway) == []
    problem(await admin.get(path(OTHER)), 404, "blob_missing")


@pytest.mark.parametrize("announced", [True, False])
async def test_a_blob_over_the_limit_is_refused_and_not_kept(gateway, admin, problem, announced):
    async def chunks():
        for _ in range(11):
            yield b"x" * 10_000

    response = await admin.put(path(), content=b"x" * 110_000 if announced else chunks())
    body = problem(response, 413, "payload_too_large")
    assert "100000 bytes" in body["detail"]
    assert response.headers["connection"] == "close"
    assert stored(gateway) == []


async def test_a_client_that_stops_sending_is_given_up(gateway, admin, problem):
    async def chunks():
        yield b"x"
        await asyncio.sleep(5)

    problem(await admin.put(path(), content=chunks()), 408, "request_timeout")
    assert stored(gateway) == []


@pytest.mark.parametrize(
    "digest",
    [
        "x",
        "sha256:",
        "sha256:" + "A" * 64,
        "sha256:" + "0" * 63,
        "md5:" + "0" * 64,
        "sha256:..%2f..%2fx",
    ],
)
async def test_other_texts_than_digests_are_refused(admin, problem, digest):
    for method in ("PUT", "GET"):
        response = await admin.request(method, path(digest), content=b"x")
        problem(response, *((404, "not_found") if "%2f" in digest else (400, "bad_request")))


async def test_compressed_bodies_are_refused(admin, problem):
    response = await admin.put(path(), content=CONTENT, headers={"Content-Encoding": "gzip"})
    problem(response, 415, "unsupported_media_type")


async def test_a_full_disk_is_told_and_nothing_is_kept(gateway, admin, problem):
    async def full(_chunks, *, expected=None):
        raise StorageFull("the disk under /data is full", suggestions=("free space",))

    gateway.blobs.put = full
    response = await admin.put(path(), content=CONTENT)
    assert problem(response, 507, "storage_full")["suggestions"] == ["free space"]
    assert "retry-after" in response.headers
