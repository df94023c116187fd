"""The TCP port where the ranks of a gang meet, held by rank 0's node until they start."""

import random
import socket
from typing import Final

from frenzy_shared.errors import Unavailable

_TRIES: Final = 64


class RendezvousPorts:
    """Picks ports on one address.

    The range lies below the kernel's ephemeral ports, so that no outgoing connection takes a port
    in the moment between its release here and rank 0's own bind.
    """

    def __init__(self, address: str, ports: range) -> None:
        """Use ``ports`` of ``address``."""
        self._address = address
        self._ports = ports

    def reserve(self, port: int | None = None) -> socket.socket:
        """Bind one port, the given one or any free one.

        Raises:
            Unavailable: it, or every port that was tried, is in use.
        """
        if port is not None:
            return self._bind(port)
        for candidate in random.sample(self._ports, min(_TRIES, len(self._ports))):
            try:
                return self._bind(candidate)
            except Unavailable:
                continue
        raise Unavailable(f"no free rendezvous port in {self._ports} on {self._address}")

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Bound, not listening: ranks of other nodes that start earlier must be refused and
            # try again; a connection that we then drop would end them.
            bound.bind((self._address, port))
        except OSError as error:
            bound.close()
            raise Unavailable(
                f"rendezvous port {port} on {self._address}: {error.strerror}"
            ) from None
        return bound


def endpoint(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def interface_of(address: str) -> str:
    """Return the network interface that has the address, "" when none has.

    All of 127.0.0.0/8 belongs to the loopback interface, whatever it lists.
    """
    if address.startswith("127."):
        return "lo"
    import psutil  # noqa: PLC0415 - only nodes beyond loopback need it

    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return str(name)
    return ""
