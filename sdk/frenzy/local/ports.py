"""TCP ports on loopback: stated ones must be free, others are any free ones."""

import errno
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

from frenzy.local.processes import listener_of
from frenzy_shared.errors import Misconfigured
from frenzy_shared.files import write_private


def free_ports(count: int) -> list[int]:
    """Return distinct ports that are free now; all are held open until all are known."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def kept_port(path: Path) -> int:
    """Return the port that a file remembers, while it is free; else a free one to remember.

    Raises:
        Misconfigured: the file cannot be written.
    """
    with suppress(OSError, ValueError, Misconfigured):
        known = int(path.read_text(encoding="ascii"))
        require_free(known)
        return known
    (port,) = free_ports(1)
    write_private(path, f"{port}\n")
    return port


def require_free(port: int, host: str = "127.0.0.1", option: str = "--port") -> None:
    """Check that a stated port of this machine can be used.

    Raises:
        Misconfigured: naming who has it, or the address that is not this machine's.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the server will: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise Misconfigured(
                    f"{host} is not an address of this machine",
                    suggestions=("ip address shows them",),
                ) from None
            who = listener_of(port)
            raise Misconfigured(
                f"port {port} is in use" + (f" by {who}" if who else f": {error.strerror}"),
                suggestions=(f"frenzy up {option} {port + 1}", "stop what uses that port"),
            ) from None
