"""Where the servers of one machine listen: on loopback in the clear, or with TLS for others too."""

import datetime as dt
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frenzy.local.layout import Layout
from frenzy.local.options import Options

if TYPE_CHECKING:
    from frenzy.local.certificates import Certificate

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Address of the API and of the bus. Off loopback there is a certificate, always."""

    host: str
    bus_port: int
    certificate: "Certificate | None" = None

    @property
    def bus_url(self) -> str:
        """Return nats-server's address."""
        return f"{'tls' if self.certificate else 'nats'}://{_in_url(self.host)}:{self.bus_port}"

    @property
    def authority(self) -> Path | None:
        """Return the file of the authority's certificate; None without TLS."""
        return self.certificate.authority if self.certificate else None

    def http_url(self, port: int) -> str:
        """Return the API's address."""
        return f"{'https' if self.certificate else 'http'}://{_in_url(self.host)}:{port}"

    def tls(self) -> ssl.SSLContext | None:
        """Return what a client on this machine checks the servers by."""
        if self.certificate is None:
            return None
        return ssl.create_default_context(cafile=str(self.certificate.authority))

    def bus_settings(self) -> dict[str, str]:
        """Return how every service reaches the bus."""
        settings = {"FRENZY_NATS_URL": self.bus_url}
        return (
            settings
            if self.authority is None
            else {**settings, "FRENZY_NATS_CA": str(self.authority)}
        )

    def gateway_settings(self, layout: Layout) -> dict[str, str]:
        """Return where the gateway listens, and how it admits others to the bus."""
        settings = {
            "FRENZY_HTTP_HOST": self.host,
            "FRENZY_BUS_USERS": str(layout.bus_users),
            "FRENZY_BUS_PUBLIC_URL": self.bus_url,
        }
        if self.certificate is None:
            return settings
        return {
            **settings,
            "FRENZY_HTTP_CERT": str(self.certificate.chain),
            "FRENZY_HTTP_KEY": str(self.certificate.key),
            "FRENZY_AUTHORITY": str(self.certificate.authority),
        }


def doors_of(layout: Layout, options: Options, free_port: int) -> Doors:
    """Return where to listen. With a stated address there is a certificate for it.

    Raises:
        Misconfigured: the certificates in the folder are damaged.
    """
    if not options.listen:
        return Doors(host=LOOPBACK, bus_port=free_port)
    # `frenzy down` reads this module on a bare client, which has no cryptography.
    from frenzy.local.certificates import ensure  # noqa: PLC0415 - see above

    names = (options.listen, LOOPBACK, "localhost", socket.gethostname())
    certificate = ensure(layout.certificates, names, dt.datetime.now(dt.UTC))
    return Doors(host=options.listen, bus_port=options.bus_port, certificate=certificate)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
