"""Tell whether a server answers."""

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from frenzy.local.child import Probe

_TIMEOUT_S: Final = 2.0
_LOOPBACK: Final = "127.0.0.1"


def nats_ready(host: str, port: int) -> Probe:
    """Return a probe for nats-server: it greets with INFO, also before TLS."""

    async def probe() -> bool:
        return (await _talk(host, port, b"", 5)).startswith(b"INFO")

    return probe


def valkey_ready(port: int, account: str, password: str) -> Probe:
    """Return a probe for valkey-server: it answers PONG, so its file is loaded."""
    words = "".join(f"${len(word)}\r\n{word}\r\n" for word in ("AUTH", account, password))
    auth = f"*3\r\n{words}".encode()

    async def probe() -> bool:
        answer = await _talk(_LOOPBACK, port, auth + b"*1\r\n$4\r\nPING\r\n", 12)
        return answer == b"+OK\r\n+PONG\r\n"

    return probe


def http_ready(
    port: int, path: str, *, host: str = _LOOPBACK, tls: ssl.SSLContext | None = None
) -> Probe:
    """Return a probe for an HTTP server: ``path`` answers 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()

    async def probe() -> bool:
        answer = await _talk(host, port, request, 12, tls)
        return answer in (b"HTTP/1.1 200", b"HTTP/1.0 200")

    return probe


async def _talk(
    host: str, port: int, request: bytes, wanted: int, tls: ssl.SSLContext | None = None
) -> bytes:
    """Send bytes to a port of this machine and return the first of the answer, or nothing."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(request)
                return await reader.readexactly(wanted)
            finally:
                writer.close()
    return b""
