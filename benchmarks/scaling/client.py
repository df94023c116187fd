"""A client that costs little: HTTP/1.1 on kept connections, so that servers have the processors.

It does what the SDK does: one key over all tries of a submission, and waits as long as the server
asks for.
"""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

_CONNECTIONS: Final = 256
_TRIES: Final = 400
_LOST_S: Final = 0.2  # before a try after a connection that broke


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one request brought; ``seconds`` from sending it to its last byte."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


_BROKEN: Final = Answer(status=0, headers={}, body=b"", seconds=0.0)


@dataclass(kw_only=True)
class Client:
    """Requests to several gateways, in turn; after a broken connection to the next one."""

    ports: tuple[int, ...]
    token: str
    statuses: Counter[int] = field(default_factory=Counter[int])  # 0: the connection broke
    _idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = field(
        default_factory=dict
    )
    _turn: int = 0
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CONNECTIONS))

    async def submit(self, project: str, key: str, spec: dict[str, Any]) -> tuple[str, Answer, int]:
        """Submit until accepted; return the job, the answer that accepted it, and the tries."""
        path = f"/api/v1/jobs?project={project}"
        for tries in range(1, _TRIES + 1):
            answer = await self.request("POST", path, spec, {"Idempotency-Key": key})
            self.statuses[answer.status] += 1
            if answer.status in (200, 201):
                return json.loads(answer.body)["id"], answer, tries
            if answer.status not in (0, 429, 502, 503):
                raise RuntimeError(f"{answer.status}: {answer.body[:500]!r}")
            asked = float(answer.headers.get("retry-after", _LOST_S))
            await asyncio.sleep(asked * random.uniform(1.0, 1.2))
        raise RuntimeError(f"{key} was not accepted in {_TRIES} tries")

    async def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request; status 0 when the connection broke."""
        content = b"" if body is None else json.dumps(body).encode()
        lines = {
            "Host": "127.0.0.1",
            "Authorization": f"Bearer {self.token}",
            "Content-Length": str(len(content)),
            "Content-Type": "application/json",
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        async with self._slots:
            self._turn += 1
            port = self.ports[self._turn % len(self.ports)]
            started = time.perf_counter()
            try:
                reader, writer = await self._connection(port)
            except OSError:
                return _BROKEN
            keep = False
            try:
                writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
                status, answered, text = await _read(reader)
                keep = answered.get("connection") != "close"
            except (OSError, asyncio.IncompleteReadError):
                return _BROKEN
            finally:
                if keep:
                    self._idle.setdefault(port, []).append((reader, writer))
                else:
                    await _end(writer)
            took = time.perf_counter() - started
        return Answer(status=status, headers=answered, body=text, seconds=took)

    async def close(self) -> None:
        """Close every connection."""
        for pairs in self._idle.values():
            for _, writer in pairs:
                await _end(writer)
        self._idle.clear()

    async def _connection(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        idle = self._idle.get(port)
        while idle:
            reader, writer = idle.pop()
            if not reader.at_eof():
                return reader, writer
            await _end(writer)
        return await asyncio.open_connection("127.0.0.1", port)


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # it was broken already
        await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split(" ")[1]), headers, body
