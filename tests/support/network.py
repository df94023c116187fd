"""Hosts of their own on one machine: a network namespace each, all plugged into one switch.

Nothing of it is in the machine's own network: the switch is a bridge in a namespace of its own,
and a test enters a host's namespace by its thread (``inside``) or starts programs there
(``command``). Everything is gone when the ``Network`` closes.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000
_NOWHERE = "02:00:00:00:00:ff"  # a hardware address that nobody has
_RUN = Path("/run/netns")

needs_network_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None,
    reason="needs root, iproute2 and util-linux: network namespaces",
)


class Network:
    """One switch and its hosts; host number n (from 1) has the address 10.77.0.n."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._prefix = f"fz{secrets.token_hex(3)}"
        self._numbers = {host: number for number, host in enumerate(hosts, start=1)}
        self._switch = f"{self._prefix}-switch"

    def __enter__(self) -> "Network":
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def address(self, host: str) -> str:
        return f"10.77.0.{self._numbers[host]}"

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return a command line that runs ``argv`` on a host, in a process of the same id."""
        return ["nsenter", f"--net={_RUN / self._namespace(host)}", "--", *argv]

    @contextlib.contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Be on a host: sockets and processes that this thread makes belong to it."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(_RUN / self._namespace(host), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
            yield
        finally:
            _enter(before)
            os.close(there)
            os.close(before)

    # -- faults -------------------------------------------------------------------------------

    def cut(self, host: str) -> None:
        """Pull a host's cable: it hears nobody and nobody hears it."""
        self._ip(self._switch, "link", "set", self._port(host), "down")

    def mend(self, host: str) -> None:
        self._ip(self._switch, "link", "set", self._port(host), "up")

    def mute(self, host: str, towards: str) -> None:
        """Lose, silently, what a host sends to another one; the other way stays open.

        Its frames go to a hardware address that is nobody's, so nothing tells the sender.
        """
        entry = (self.address(towards), "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
        self._ip(self._namespace(host), "neigh", "replace", *entry)

    def unmute(self, host: str, towards: str) -> None:
        self._ip(self._namespace(host), "neigh", "del", self.address(towards), "dev", "eth0")

    # -- inside -------------------------------------------------------------------------------

    def _build(self) -> None:
        for name in (self._switch, *map(self._namespace, self._numbers)):
            _run("ip", "netns", "add", name)
            self._ip(name, "link", "set", "lo", "up")
        self._ip(self._switch, "link", "add", "bridge", "type", "bridge")
        self._ip(self._switch, "link", "set", "bridge", "up")
        for host in self._numbers:
            port, namespace = self._port(host), self._namespace(host)
            cable = ("type", "veth", "peer", "name", "eth0", "netns", namespace)
            self._ip(self._switch, "link", "add", port, *cable)
            self._ip(self._switch, "link", "set", port, "master", "bridge", "up")
            self._ip(namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            self._ip(namespace, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        for path in _RUN.glob(f"{self._prefix}-*"):
            _run("ip", "netns", "del", path.name)

    def _namespace(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _port(self, host: str) -> str:
        return f"port{self._numbers[host]}"

    def _ip(self, namespace: str, *arguments: str) -> None:
        _run("ip", "-n", namespace, *arguments)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
