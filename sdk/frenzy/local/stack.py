"""Which processes make up Frenzy on one machine, in the order in which they start."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy.local import binaries, identities, servers
from frenzy.local.child import ChildSpec, Probe
from frenzy.local.credentials import STORE_ADMIN, Credentials, secrets_key
from frenzy.local.doors import LOOPBACK, Doors, doors_of
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.ports import free_ports, kept_port
from frenzy.local.probes import http_ready, nats_ready, valkey_ready
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole

_STOP_S: Final = 15.0
_MODULES: Final = {
    BusRole.GATEWAY: "frenzy_gateway",
    BusRole.MARP: "frenzy_marp",
    BusRole.SCHEDULER: "frenzy_scheduler",
    BusRole.NODE: "frenzy_orchestrator",
}
# Agents are a function call away: register and notice changes at once instead of in 5 s.
_TIMING: Final = {"FRENZY_HEARTBEAT_S": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Everything to run. ``servers`` are ready before ``services`` start."""

    url: str
    servers: tuple[ChildSpec, ...]
    services: tuple[ChildSpec, ...]
    nats: Access  # of an administrator, for `frenzy up` itself
    redis_url: str  # likewise


def build(layout: Layout, options: Options, secret: Credentials) -> Stack:
    """Choose ports, write the servers' configuration and return the processes.

    Raises:
        Misconfigured: a server program or a configuration is missing.
    """
    nats_port = kept_port(layout.bus_port)
    valkey_port, http_port = free_ports(2)
    http_port = options.port or http_port
    nats = binaries.find(binaries.NATS)
    valkey = binaries.find(binaries.VALKEY)
    identities.admit(layout.bus_users, layout.keys, options.nodes)
    doors = doors_of(layout, options, nats_port)
    make = _Maker(
        layout=layout,
        options=options,
        doors=doors,
        secret=secret,
        store_port=valkey_port,
    )
    return Stack(
        url=doors.http_url(http_port),
        servers=(
            make.server(
                "nats",
                servers.nats_command(nats, layout, doors),
                nats_ready(doors.host, doors.bus_port),
            ),
            make.server(
                "valkey",
                servers.valkey_command(valkey, layout, valkey_port, secret),
                valkey_ready(valkey_port, STORE_ADMIN, secret.redis_password),
            ),
        ),
        services=(
            *make.replicated("marp"),
            *make.replicated("scheduler"),
            *make.agents(),
            *make.gateways(http_port),
        ),
        nats=Access(
            url=doors.bus_url,
            nkey=identities.key_file(layout.keys, BusRole.ADMIN),
            ca=doors.authority,
        ),
        redis_url=make.redis_url(STORE_ADMIN),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    layout: Layout
    options: Options
    doors: Doors
    secret: Credentials
    store_port: int

    def redis_url(self, account: str) -> str:
        password = self.secret.store_password(account)
        return f"redis://{account}:{password}@{LOOPBACK}:{self.store_port}/0"

    def server(self, name: str, argv: list[str], ready: Probe) -> ChildSpec:
        return ChildSpec(
            name=name,
            argv=argv,
            environment=servers.child_environment(self.layout.temporary),
            folder=self.layout.root,
            log=self.layout.log(name),
            ready=ready,
        )

    def replicated(self, service: str) -> list[ChildSpec]:
        return [
            self._service(name, BusRole(service), self.layout.server(service), {})
            for name in _names(service, self.options.count(service))
        ]

    def agents(self) -> list[ChildSpec]:
        return [
            self._service(
                f"agent-{node}",
                BusRole.NODE,
                self.layout.node(node),
                {
                    "FRENZY_NODE": node,
                    "FRENZY_ADDRESS": self.options.listen or f"127.0.1.{number}",
                    "FRENZY_EMULATED_DEVICES": devices,
                    "FRENZY_BLOBS": str(self.layout.blobs),
                    "FRENZY_CHECKPOINTS_DIR": str(self.layout.checkpoints),
                },
            )
            for number, (node, devices) in enumerate(self.options.nodes.items(), start=1)
        ]

    def gateways(self, port: int) -> list[ChildSpec]:
        names = _names("gateway", self.options.count("gateway"))
        ports = [port, *free_ports(len(names) - 1)]
        return [
            self._service(
                name,
                BusRole.GATEWAY,
                self.layout.server("gateway"),
                {
                    "FRENZY_HTTP_PORT": str(listen),
                    "FRENZY_BLOBS": str(self.layout.blobs),
                    "FRENZY_ADMIN_TOKEN": self.secret.admin_token,
                    "FRENZY_STORE_LOG": str(self.layout.log("valkey")),
                    "FRENZY_SECRETS_KEY": str(secrets_key(self.layout)),
                    **self.doors.gateway_settings(self.layout),
                },
                ready=http_ready(listen, "/readyz", host=self.doors.host, tls=self.doors.tls()),
            )
            for name, listen in zip(names, ports, strict=True)
        ]

    def _service(
        self,
        name: str,
        role: BusRole,
        data: Path,
        own: Mapping[str, str],
        *,
        ready: Probe | None = None,
    ) -> ChildSpec:
        data.mkdir(parents=True, exist_ok=True)
        (metrics,) = free_ports(1)
        key = identities.key_file(self.layout.keys, role, own.get("FRENZY_NODE", ""))
        environment = {
            **servers.child_environment(self.layout.temporary),
            **_TIMING,
            **self.options.settings,
            "FRENZY_NATS_NKEY": str(key),
            **self.doors.bus_settings(),
            **({} if role is BusRole.NODE else {"FRENZY_REDIS_URL": self.redis_url(role)}),
            "FRENZY_DATA_DIR": str(data),
            "FRENZY_INSTANCE": name,
            "FRENZY_METRICS_PORT": str(metrics),
            **own,
        }
        return ChildSpec(
            name=name,
            argv=[sys.executable, "-P", "-m", _MODULES[role]],
            environment=environment,
            folder=self.layout.root,
            log=self.layout.log(name),
            ready=ready or http_ready(metrics, "/metrics"),
            stop_within_s=_STOP_S,
        )


def _names(service: str, count: int) -> list[str]:
    return [service] if count == 1 else [f"{service}-{number}" for number in range(1, count + 1)]
