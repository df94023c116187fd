"""What `frenzy up` was asked for, checked."""

import difflib
import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from frenzy_shared.catalog.gpus import EMULATED_PREFIX
from frenzy_shared.domain.ids import is_name
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import GIB, MIB, parse_bytes

DEFAULT_PORT: Final = 8642
DEFAULT_BUS_PORT: Final = 4222
SERVICES: Final = ("gateway", "marp", "scheduler")
# Three nodes, three kinds; the middle kind is on two nodes, so that a gang can span them.
MIXED_CLUSTER: Final = (
    "node-a:emulated-rtx2080ti:2:96MiB:0.5;"
    "node-b:emulated-a100-40:1:256MiB:1.0;"
    "node-c:emulated-a100-40:1:256MiB:1.0;"
    "node-c:emulated-a100-80:1:512MiB:1.5"
)
_MOST_DEVICES: Final = 256  # of one node: what its agent takes
_LEAST_BYTES: Final = MIB
_MOST_BYTES: Final = 1024**2 * GIB  # exact also where a store counts with 53 bits
_LISTEN_EXAMPLE: Final = "name the address by which other machines reach this one: 10.0.0.5"
_SET_EXAMPLE: Final = "write for example --set FRENZY_POLICY=fifo (docs/reference/settings.md)"
_OWN_SETTINGS: Final = frozenset(
    f"FRENZY_{name}"
    for name in (
        "NATS_URL",
        "REDIS_URL",
        "DATA_DIR",
        "INSTANCE",
        "METRICS_PORT",
        "NODE",
        "ADDRESS",
        "EMULATED_DEVICES",
        "BLOBS",
        "BLOBS_TOKEN",
        "CHECKPOINTS_DIR",
        "HTTP_HOST",
        "HTTP_PORT",
        "HTTP_CERT",
        "HTTP_KEY",
        "HTTP_PLAIN",
        "NATS_NKEY",
        "NATS_CA",
        "BUS_USERS",
        "BUS_PUBLIC_URL",
        "AUTHORITY",
        "BLOBS_CA",
        "ADMIN_TOKEN",
        "SECRETS_KEY",
    )
)
_EXAMPLE: Final = 'write for example "node-a:emulated-a100:2:384MiB:1.0;node-b:..."'


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to run. ``nodes``: agent name -> emulated devices as the agent reads them.

    An empty text of devices means the machine's real GPUs. ``port`` 0 is any free port.
    ``die_with_parent``: the supervisor stops when the process that started it is gone.
    """

    port: int = DEFAULT_PORT
    listen: str = ""  # this machine's address for others; empty: loopback, without TLS
    bus_port: int = DEFAULT_BUS_PORT  # of nats-server, when other machines may connect
    nodes: Mapping[str, str] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # further FRENZY_* of all services
    stop_grace_s: float = 30.0
    die_with_parent: bool = False

    def count(self, service: str) -> int:
        """Return how many replicas of a service run."""
        return self.replicas.get(service, 1)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read what ``to_json`` made."""
        return cls(**value)


def parse_emulated(text: str) -> dict[str, str]:
    """Parse ``<node>:<kind>:<count>:<memory>:<speed>;...`` into devices per node.

    Raises:
        Misconfigured: naming the part that is wrong.
    """
    nodes: dict[str, list[str]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        node, *device = part.split(":")
        if len(device) != 4:
            raise Misconfigured(f"--emulated: {part!r} has not five parts", suggestions=(_EXAMPLE,))
        if not is_name(node):
            raise Misconfigured(f"--emulated: {node!r} is not a node name (a-z, 0-9, '-')")
        _check_device(part, *device)
        nodes.setdefault(node, []).append(":".join(device))
        count = sum(int(devices.split(":")[1]) for devices in nodes[node])
        if count > _MOST_DEVICES:
            raise Misconfigured(
                f"--emulated: node {node!r} has {count} devices; 1-{_MOST_DEVICES} are possible"
            )
    if not nodes:
        raise Misconfigured("--emulated names no device", suggestions=(_EXAMPLE,))
    return {node: ",".join(devices) for node, devices in nodes.items()}


def device_list(text: str) -> str:
    """Check one node's emulated devices, ``<kind>:<count>:<memory>:<speed>,...``, and return them.

    Raises:
        Misconfigured: naming the part that is wrong.
    """
    if not text:
        return ""
    pieces = (f"node:{part}" for part in text.split(","))
    return parse_emulated(";".join(pieces))["node"]


def parse_listen(text: str) -> str:
    """Return the address on which other machines may reach this one; empty for loopback.

    Raises:
        Misconfigured: not one concrete address of this machine.
    """
    if text in ("", "localhost"):
        return ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise Misconfigured(
            f"--listen: {text!r} is not an address", suggestions=(_LISTEN_EXAMPLE,)
        ) from None
    if address.is_unspecified:
        raise Misconfigured(
            f"--listen: {text} is every address, and a certificate names one",
            suggestions=(_LISTEN_EXAMPLE,),
        )
    return "" if address.is_loopback and text == "127.0.0.1" else text


def parse_replicas(text: str) -> dict[str, int]:
    """Parse ``gateway=2,scheduler=2``.

    Raises:
        Misconfigured: an unknown service or not a count from 1 to 16.
    """
    replicas = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, count = part.partition("=")
        if name not in SERVICES or not re.fullmatch("[0-9]{1,2}", count):
            raise Misconfigured(
                f"--replicas: {part!r} is not <service>=<count>",
                suggestions=(f"services: {', '.join(SERVICES)}; for example gateway=2,marp=2",),
            )
        if not 1 <= int(count) <= 16:
            raise Misconfigured(f"--replicas: {name}={count} is not between 1 and 16")
        replicas[name] = int(count)
    return replicas


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``FRENZY_<NAME>=<value>`` texts that override settings of all services.

    Raises:
        Misconfigured: no such setting, or one that `frenzy up` chooses itself.
    """
    known = _known_settings() if texts else []
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Misconfigured(f"--set: {text!r} is not NAME=VALUE", suggestions=(_SET_EXAMPLE,))
        if name in _OWN_SETTINGS:
            raise Misconfigured(f"--set: `frenzy up` chooses {name} itself")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else _SET_EXAMPLE
            raise Misconfigured(f"--set: there is no setting {name!r}", suggestions=(hint,))
        found[name] = value
    return found


def default_nodes() -> dict[str, str]:
    """Return this machine's NVIDIA GPUs as one node, or else the emulated mixed cluster."""
    return {host_name(): ""} if has_nvidia_gpus() else parse_emulated(MIXED_CLUSTER)


def host_name() -> str:
    """Return this machine's name as a node name."""
    cleaned = re.sub("[^a-z0-9-]+", "-", socket.gethostname().lower()).strip("-")[:63].strip("-")
    return cleaned or "node"


def has_nvidia_gpus() -> bool:
    """Ask NVML whether there is a GPU; no driver or no library means no."""
    try:
        import pynvml  # noqa: PLC0415 - of the extra frenzy[node]; absent on a client
    except ImportError:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        return bool(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


def _known_settings() -> list[str]:
    # Only here: the settings of services need packages that a bare client does not have.
    from frenzy_gateway.settings import GatewaySettings  # noqa: PLC0415 - see above
    from frenzy_marp.settings import MarpSettings  # noqa: PLC0415 - see above
    from frenzy_orchestrator.settings import OrchestratorSettings  # noqa: PLC0415 - see above
    from frenzy_scheduler.settings import SchedulerSettings  # noqa: PLC0415 - see above

    kinds = (GatewaySettings, MarpSettings, OrchestratorSettings, SchedulerSettings)
    return sorted({f"FRENZY_{name.upper()}" for kind in kinds for name in kind.model_fields})


def _check_device(part: str, kind: str, count: str, memory: str, speed: str) -> None:
    if not is_name(kind) or not kind.startswith(EMULATED_PREFIX):
        raise Misconfigured(
            f"--emulated: {kind!r} in {part!r} is not a kind name: "
            f"{EMULATED_PREFIX}<name> of a-z, 0-9 and '-'"
        )
    if not re.fullmatch("[1-9][0-9]{0,2}", count) or int(count) > _MOST_DEVICES:
        raise Misconfigured(
            f"--emulated: {count!r} in {part!r} is not a count from 1 to {_MOST_DEVICES}"
        )
    try:
        memory_bytes = parse_bytes(memory)
    except ValueError as error:
        raise Misconfigured(f"--emulated: {part!r}: {error}") from None
    if not _LEAST_BYTES <= memory_bytes <= _MOST_BYTES:
        raise Misconfigured(
            f"--emulated: {memory!r} in {part!r} is not a device's memory: from 1 MiB to 1024 TiB"
        )
    if not re.fullmatch(r"\d+(\.\d+)?", speed) or not 0 < float(speed) <= 100:
        raise Misconfigured(f"--emulated: {speed!r} in {part!r} is not a speed (1.0: this CPU)")
