"""An application behind the gateway's own server with TLS, and what a client sees of it."""

import asyncio
import ssl
from urllib.parse import urlsplit

from frenzy_gateway.adapters.certificate import ServedCertificate
from frenzy_gateway.adapters.server import listen, serve


class Served:
    """Serves from entry to exit; entering gives the certificate and the URL."""

    def __init__(self, app, certificate: ServedCertificate) -> None:
        self._app = app
        self._certificate = certificate
        self._stop = asyncio.Event()

    async def __aenter__(self) -> tuple[ServedCertificate, str]:
        listener = listen("127.0.0.1", 0)
        self._serving = asyncio.ensure_future(
            serve(self._app, listener, self._stop, drain_s=0, tls=self._certificate.context)
        )
        return self._certificate, f"https://127.0.0.1:{listener.getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._serving


async def peer(url: str, trust: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection is shown, as DER."""
    where = urlsplit(url)
    _, writer = await asyncio.open_connection(where.hostname, where.port, ssl=trust)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return shown
