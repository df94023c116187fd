"""Serve an ASGI application until a stop flag, on a socket that is already ours."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from frenzy_shared.errors import Misconfigured

_BACKLOG = 2048
_FINISH_S = 3  # running requests may take so long after the stop
_MAX_CONNECTIONS = 4096


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handlers: the runtime's stop flag ends it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Bind the address of the API.

    Raises:
        Misconfigured: it is in use, not this machine's, or not permitted.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        why = "in use" if error.errno == errno.EADDRINUSE else f"not possible: {error.strerror}"
        raise Misconfigured(
            f"port {port} on {host} is {why}",
            suggestions=("set FRENZY_HTTP_PORT (0 = any free port) and FRENZY_HTTP_HOST",),
        ) from None
    return listener


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    drain_s: float,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until ``stop`` is set; then ``drain_s`` more, so that load balancers see 503 first.

    Running requests get a few seconds to finish, then they are cancelled. Without ``tls`` the API
    is in the clear.
    """
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_FINISH_S,
            ssl_context_factory=None if tls is None else lambda *_: tls,
        )
    )
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await asyncio.sleep(drain_s)
    finally:
        stopped.cancel()
        server.should_exit = True
    await serving
