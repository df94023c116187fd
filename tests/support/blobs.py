"""A gateway's blob routes in a few lines of ASGI, over a directory."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.errors import BlobMissing, FrenzyError

STATUSES = {"blob_missing": 404, "blob_corrupt": 422, "bad_request": 400, "storage_full": 507}


class BlobRoutes:
    """PUT, HEAD and GET of ``/api/v1/blobs/{digest}`` with one bearer token."""

    def __init__(self, root: Path, token: str) -> None:
        self.store = DirectoryBlobStore(root)
        self.requests: list[str] = []
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append(scope["method"])
        headers = dict(scope["headers"])
        if headers.get(b"authorization") != f"Bearer {self._token}".encode():
            await respond(send, 401)
            return
        digest = scope["path"].removeprefix("/api/v1/blobs/")
        try:
            if scope["method"] == "PUT":
                await self.store.put(body(receive), expected=digest)
                await respond(send, 201)
                return
            if not await self.store.exists(digest):
                raise BlobMissing(f"no blob {digest}")
            content = b"".join([chunk async for chunk in self.store.open(digest)])
            await respond(send, 200, content)
        except FrenzyError as error:
            problem = {"code": error.code, "detail": error.message}
            await respond(
                send,
                STATUSES[error.code],
                json.dumps(problem).encode(),
                "application/problem+json",
            )


async def respond(send: Any, status: int, content: bytes = b"", media: str = "x/y") -> None:
    headers = [(b"content-length", b"%d" % len(content)), (b"content-type", media.encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def body(receive: Any) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        yield message.get("body", b"")
