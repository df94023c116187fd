"""Blobs through the gateway: for nodes without the shared directory, for the CLI and the SDK."""

import asyncio
import hashlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import httpx

from frenzy_shared.blobs.digest import CHUNK_BYTES, hex_of
from frenzy_shared.blobs.files import read_file, write_file
from frenzy_shared.errors import (
    BadRequest,
    BlobCorrupt,
    BlobMissing,
    Forbidden,
    FrenzyError,
    PayloadTooLarge,
    StorageFull,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=60.0, write=60.0, pool=5.0)
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)
_CODES: Final = {
    kind.code: kind
    for kind in (
        BadRequest,
        BlobCorrupt,
        BlobMissing,
        Forbidden,
        PayloadTooLarge,
        StorageFull,
        Unauthenticated,
    )
}
_STATUSES: Final[dict[int, type[FrenzyError]]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: BlobMissing,
    413: PayloadTooLarge,
    507: StorageFull,
}


class HttpBlobStore:
    """A blob store behind a gateway's ``/api/v1/blobs``.

    Every call is safe to repeat (content has one name), so lost connections and overload are
    tried again, five times in all. ``ca`` holds the authority of the gateway's certificate where
    that is not a public one. ``transport`` replaces the network in tests.
    """

    def __init__(
        self,
        base_url: str,
        token: str = "",
        *,
        ca: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        pauses_s: tuple[float, ...] = _PAUSES_S,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._transport = transport
        # Made once: reading the system's certificates takes longer than a request.
        self._verify = ssl.create_default_context(cafile=None if ca is None else str(ca))
        self._pauses_s = pauses_s

    async def put(self, chunks: AsyncIterator[bytes], *, expected: str | None = None) -> str:
        """Store a stream of bytes; it is spooled to disk first, because its digest names it."""
        with tempfile.TemporaryDirectory(prefix="frenzy-blob-") as folder:
            spooled = Path(folder) / "blob"
            await write_file(chunks, spooled)
            digest = await _hash(spooled)
            if expected is not None and digest != f"sha256:{hex_of(expected)}":
                raise BlobCorrupt(f"the content is {digest}, not {expected}")
            await self._upload(spooled, digest)
        return digest

    async def put_file(self, path: Path) -> str:
        """Store a file; what the gateway already has is not sent again."""
        digest = await _hash(path)
        await self._upload(path, digest)
        return digest

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        """Yield the bytes and verify them at the end.

        A connection lost half-way is replaced, and the bytes already yielded are skipped.
        """
        url, hashed, yielded = self._url(digest), hashlib.sha256(), 0
        for pause_s in (*self._pauses_s, None):
            try:
                async with self._client() as client, client.stream("GET", url) as response:
                    await _check(response)
                    skip = yielded
                    async for chunk in response.aiter_bytes(CHUNK_BYTES):
                        fresh, skip = chunk[skip:], max(0, skip - len(chunk))
                        if fresh:
                            hashed.update(fresh)
                            yielded += len(fresh)
                            yield fresh
                break
            except (httpx.TransportError, Unavailable) as error:
                if pause_s is None or isinstance(error, StorageFull):
                    raise _unavailable(error) from error
                await asyncio.sleep(pause_s)
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise BlobCorrupt(f"the gateway sent sha256:{hashed.hexdigest()} for {digest}")

    async def fetch(self, digest: str, target: Path) -> None:
        """Write the verified bytes to ``target``."""
        await write_file(self.open(digest), target)

    async def exists(self, digest: str) -> bool:
        """Tell whether the digest is stored."""
        try:
            await self.size(digest)
        except BlobMissing:
            return False
        return True

    async def size(self, digest: str) -> int:
        """Return the size in bytes."""
        url = self._url(digest)

        async def head() -> int:
            async with self._client() as client:
                response = await client.head(url)
                await _check(response)
                return int(response.headers["Content-Length"])

        return await self._trying(head)

    async def _upload(self, path: Path, digest: str) -> None:
        if await self.exists(digest):
            return
        length = str((await asyncio.to_thread(path.stat)).st_size)

        async def put() -> None:
            async with self._client() as client:
                response = await client.put(
                    self._url(digest), content=read_file(path), headers={"Content-Length": length}
                )
                await _check(response)

        await self._trying(put)

    async def _trying(self, call: Callable[[], Awaitable[T]]) -> T:
        for pause_s in self._pauses_s:
            try:
                return await call()
            except StorageFull:
                raise
            except (httpx.TransportError, Unavailable):
                await asyncio.sleep(pause_s)
        try:
            return await call()
        except httpx.TransportError as error:
            raise _unavailable(error) from error

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=self._headers,
            timeout=_TIMEOUT,
            transport=self._transport,
            verify=self._verify,
        )

    def _url(self, digest: str) -> str:
        return f"{self._base_url}/api/v1/blobs/sha256:{hex_of(digest)}"


async def _hash(path: Path) -> str:
    hashed = hashlib.sha256()
    async for chunk in read_file(path):
        hashed.update(chunk)
    return f"sha256:{hashed.hexdigest()}"


async def _check(response: httpx.Response) -> None:
    """Raise the error that a response carries: by its problem's ``code``, else by its status."""
    if response.is_success:
        return
    code, detail = _problem(await response.aread())
    detail = detail or response.reason_phrase
    status = response.status_code
    by_status = Unavailable if status >= 500 or status == 429 else BadRequest
    kind = _CODES.get(code) or _STATUSES.get(status, by_status)
    raise kind(f"{response.request.url}: {status} {detail}")


def _problem(body: bytes) -> tuple[str, str]:
    """Return code and detail of a problem document, "" where there is none (HEAD, a proxy)."""
    try:
        problem = json.loads(body)
        return str(problem.get("code", "")), str(problem.get("detail", ""))
    except (ValueError, AttributeError):
        return "", ""


def _unavailable(error: Exception) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    return Unavailable(f"the blob store cannot be reached: {type(error).__name__}: {error}")
