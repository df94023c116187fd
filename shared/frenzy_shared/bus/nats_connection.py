"""One connection to NATS that never gives up by itself, and says so when it must.

nats-py reports most trouble only to callbacks: a denied subscription raises nothing, a denied
publish looks like a timeout, and its default is to stop reconnecting after two minutes.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import AuthorizationError, Error

from frenzy_shared.bus.nats_permissions import inbox_prefix
from frenzy_shared.errors import FrenzyError, Misconfigured, Unavailable
from frenzy_shared.settings import ServiceSettings

log = logging.getLogger(__name__)

Fatal = Callable[[FrenzyError], None]

_LOG_EVERY_S: Final = 10.0
# The server lets a question be answered once, for a minute, and forgets the question when it is
# restarted: a denied answer came too late, and says nothing about our rights.
_LATE_ANSWER: Final = 'permissions violation for publish to "_inbox_'


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the server is and who asks: a secret in the URL, or the seed of an nkey in a file.

    ``ca`` holds the certificates that the server's must be signed by, where it speaks TLS.
    """

    url: str = field(repr=False)  # may hold a secret
    nkey: Path | None = None
    ca: Path | None = None


def bus_access(settings: ServiceSettings) -> Access:
    """Return the access that a service's settings name."""
    return Access(
        url=settings.nats_url.get_secret_value(), nkey=settings.nats_nkey, ca=settings.nats_ca
    )


def exit_process(error: FrenzyError) -> None:
    """End the process: the bus will never work again with this configuration."""
    log.critical("%s; exiting", error.message)
    logging.shutdown()
    os._exit(1)


class Connection:
    """A NATS client with Frenzy's settings (reference: reliability 3.10).

    ``interrupts`` are called when the connection breaks, so that whoever waits for a reply that
    will never come asks again at once.
    """

    def __init__(self, name: str, on_fatal: Fatal) -> None:
        self.client = Client()
        self.interrupts: set[Callable[[], None]] = set()
        self.on_fatal = on_fatal
        self._name = name
        self._up = asyncio.Event()
        self._opened = False
        self._closing = False
        self._refused: asyncio.Future[Misconfigured] | None = None
        self._quiet_until: dict[str, float] = {}

    @property
    def connected(self) -> bool:
        """Tell whether the server is reachable at this moment."""
        return self.client.is_connected and not self._closing

    @property
    def server_version(self) -> str:
        """Return the server's version, "" when it is not one."""
        version = self.client.connected_server_version
        try:
            return f"{version.major}.{version.minor}.{version.patch}"
        except ValueError:
            return ""

    async def open(self, access: Access, timeout_s: float) -> None:
        """Connect.

        Raises:
            Unavailable: no server answered in time.
            Misconfigured: the URL or a file is not what it must be, or the server refuses the
                credentials, or its certificate is not to be trusted.
        """
        secrets = _secrets(access)
        self._refused = asyncio.get_running_loop().create_future()
        connecting = asyncio.ensure_future(self._connect(access.url, secrets))
        either: set[asyncio.Future[Any]] = {connecting, self._refused}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if connecting.done():
            _finish(connecting)
            self._opened = True
            self._up.set()
            return
        await self._abandon(connecting)
        if self._refused.done():
            raise self._refused.result()
        raise Unavailable(
            f"no NATS server answers at {_place(access.url)} within {timeout_s:g} s",
            suggestions=("start the server, or set FRENZY_NATS_URL",),
        )

    async def ready(self, timeout_s: float) -> Client:
        """Return the client once it is connected.

        Raises:
            Unavailable: it is not, after ``timeout_s``; nothing was sent.
        """
        if not self.connected and not self._closing:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._up.wait()
            except TimeoutError:
                raise Unavailable("the NATS server is unreachable") from None
        if self._closing:
            raise Unavailable("the bus is closed")
        return self.client

    async def close(self) -> None:
        """Send what is buffered and close."""
        self._closing = True
        self._up.set()  # whoever waits in ready() must learn it
        # AttributeError: what is buffered goes to a TLS transport of asyncio that has just broken.
        with contextlib.suppress(Error, OSError, AttributeError):
            await self.client.close()
        reconnecting = self.client._reconnection_task  # noqa: SLF001 - close() may leave it running
        if reconnecting is not None:
            await _end(reconnecting)

    async def _connect(self, url: str, secrets: dict[str, Any]) -> None:
        await self.client.connect(
            url,
            name=f"frenzy-{self._name}",
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            connect_timeout=3,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,  # type: ignore[arg-type] # seconds; slept as given
            ping_interval=5,
            max_outstanding_pings=2,
            drain_timeout=10,
            inbox_prefix=inbox_prefix(self._name),
            pending_size=8 * 1024**2,
            **secrets,
        )

    async def _abandon(self, connecting: "asyncio.Future[None]") -> None:
        self._closing = True
        await _end(connecting)
        await self.close()

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        denied = "permissions violation" in text.lower()
        if isinstance(error, ssl.SSLError):
            self._distrust(error)
            return
        if _LATE_ANSWER in text.lower():
            self._warn("late answer", text)
            return
        if denied or isinstance(error, AuthorizationError) or "authorization" in text.lower():
            self._fail(
                Misconfigured(
                    f"NATS refuses this service: {text}",
                    suggestions=(
                        "check FRENZY_NATS_URL and FRENZY_NATS_NKEY, and what that key may do",
                        "a node that was shut out joins again: frenzy node join",
                    ),
                )
            )
        elif not self._closing:
            self._warn(type(error).__name__, text)

    def _distrust(self, error: ssl.SSLError) -> None:
        """Refuse a server at the start; later, wait: its certificate may be renewed."""
        text = f"no safe connection to NATS: {_certificate_problem(error)}"
        if self._opened:
            self._warn("SSLError", text)
        else:
            hints = ("check FRENZY_NATS_CA, and the names and dates of the server's certificate",)
            self._fail(Misconfigured(text, suggestions=hints))

    async def _on_disconnected(self) -> None:
        self._up.clear()
        if not self._closing:
            log.warning("lost the NATS server; reconnecting")
        for interrupt in tuple(self.interrupts):
            interrupt()

    async def _on_reconnected(self) -> None:
        log.info("reconnected to the NATS server")
        self._up.set()

    async def _on_closed(self) -> None:
        if not self._closing:
            self._fail(Unavailable(f"NATS closed the connection: {self.client.last_error}"))

    def _fail(self, error: FrenzyError) -> None:
        if self._closing:
            return
        if self._opened:
            self.on_fatal(error)
        elif self._refused is not None and not self._refused.done():
            self._refused.set_result(Misconfigured(error.message, suggestions=error.suggestions))

    def _warn(self, kind: str, text: str) -> None:
        """Log a recurring error once in a while: a slow consumer reports every dropped message."""
        now = time.monotonic()
        if now >= self._quiet_until.get(kind, 0.0):
            self._quiet_until[kind] = now + _LOG_EVERY_S
            log.warning("NATS: %s: %s", kind, text)


async def _end(task: "asyncio.Future[None]") -> None:
    """Cancel until it has worked: on Python 3.11 ``wait_for``, used in nats-py, can lose one."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)


def _finish(connecting: "asyncio.Future[None]") -> None:
    try:
        connecting.result()
    except (Error, OSError, ValueError) as error:
        raise Misconfigured(f"cannot use FRENZY_NATS_URL: {error}") from error


def _secrets(access: Access) -> dict[str, Any]:
    """Return what nats-py needs beside the URL.

    Raises:
        Misconfigured: a file cannot be used.
    """
    found: dict[str, Any] = {}
    try:
        if access.nkey is not None:
            found["nkeys_seed_str"] = access.nkey.read_text(encoding="ascii").strip()
        if access.ca is not None:
            found["tls"] = ssl.create_default_context(cafile=str(access.ca))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Misconfigured(
            f"cannot use FRENZY_NATS_NKEY or FRENZY_NATS_CA: {error}",
        ) from None
    return found


def _certificate_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return error.reason or str(error)


def _place(url: str) -> str:
    """Return the URL without its secret."""
    return url.rpartition("@")[2].rpartition("//")[2]
