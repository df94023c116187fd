"""TCP ports on loopback: stated ones must be free, others are any free ones."""

import socket
from contextlib import ExitStack

from frenzy.local.processes import listener_of
from frenzy_shared.errors import Misconfigured


def free_ports(count: int) -> list[int]:
    """Return distinct ports that are free now; all are held open until all are known."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def require_free(port: int) -> None:
    """Check that a stated port can be used.

    Raises:
        Misconfigured: naming who has it.
    """
    with socket.socket() as probe:
        # As the server will: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError as error:
            who = listener_of(port)
            raise Misconfigured(
                f"port {port} is in use" + (f" by {who}" if who else f": {error.strerror}"),
                suggestions=(f"frenzy up --port {port + 1}", "stop what uses that port"),
            ) from None
