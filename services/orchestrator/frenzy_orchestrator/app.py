"""Composition root of the node agent: the only module that names concrete adapters."""

import asyncio
import fcntl
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from frenzy_orchestrator.adapters.checkpoints import OldCheckpoints
from frenzy_orchestrator.adapters.devices.emulated import EmulatedDevices
from frenzy_orchestrator.adapters.devices.nvml import NvmlDevices
from frenzy_orchestrator.adapters.devices.port import DeviceInventory
from frenzy_orchestrator.adapters.devices.use import AttemptUse
from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.host import host_memory_bytes
from frenzy_orchestrator.adapters.journal import TMP, NodeJournal
from frenzy_orchestrator.adapters.launching import LONGEST_TMP, Launcher
from frenzy_orchestrator.adapters.preparation import Preparation
from frenzy_orchestrator.adapters.processes import ShimHost
from frenzy_orchestrator.adapters.rendezvous import RendezvousPorts, interface_of
from frenzy_orchestrator.adapters.secrets import SecretSource
from frenzy_orchestrator.adapters.users import JobUsers, open_job_users
from frenzy_orchestrator.attempt import AttemptTools
from frenzy_orchestrator.core.launch import Programs
from frenzy_orchestrator.metrics import AgentMetrics
from frenzy_orchestrator.outputs import OutputTools
from frenzy_orchestrator.roster import Roster
from frenzy_orchestrator.service import Agent
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.cgroup import counts_processes
from frenzy_orchestrator.shim.confine import Limits
from frenzy_shared.blobs import bundle
from frenzy_shared.blobs.open import open_blob_store
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import bus_access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.bus.port import Bus
from frenzy_shared.clock import SystemClock
from frenzy_shared.errors import Misconfigured
from frenzy_shared.runtime import run_until_stopped
from frenzy_shared.telemetry import Telemetry, configure, serve_metrics

log = logging.getLogger(__name__)

# The built-in trainer, and the runner of users' own scripts; both run as plain processes.
PROGRAMS = Programs(
    trainer=(sys.executable, "-P", "-m", "frenzy_trainer"),
    script=(sys.executable, "-m", "frenzy_trainer.launch"),
    bin_folder=str(Path(sys.executable).parent),
)


async def run(settings: OrchestratorSettings, programs: Programs = PROGRAMS) -> None:
    """Run until a signal; running attempts stay under their shims.

    Raises:
        Misconfigured: a bad setting, or another agent uses this folder or this name.
        Unavailable: the bus cannot be reached.
    """
    async with AsyncExitStack() as stack:
        telemetry = configure("orchestrator", settings)
        stack.callback(telemetry.close)
        stack.enter_context(exclusive(settings.data_dir))
        bus = await NatsBus.connect(
            bus_access(settings), name=connection_name(BusRole.NODE, settings.node)
        )
        stack.push_async_callback(bus.close)
        await bus.verify_streams()
        agent = assemble(settings, bus, telemetry, programs)
        serve_metrics(telemetry, settings)
        await run_until_stopped(agent.heartbeats, agent.evidence, agent.collection)


def assemble(
    settings: OrchestratorSettings, bus: Bus, telemetry: Telemetry, programs: Programs = PROGRAMS
) -> Agent:
    """Build the agent on a bus. Reads the journal; starts nothing."""
    clock = SystemClock()
    journal = NodeJournal(settings.data_dir)
    ledger = EvidenceLedger(settings.node, journal, clock.now_ms)
    inventory = _inventory(settings)
    changed = asyncio.Event()
    outputs = OutputTools(
        node=settings.node,
        bus=bus,
        clock=clock,
        ledger=ledger,
        quota_bytes=settings.log_quota_bytes,
        changed=changed,
    )
    tools = AttemptTools(
        address=settings.address,
        clock=clock,
        ledger=ledger,
        preparation=Preparation(
            data_dir=settings.data_dir,
            checkpoints_dir=settings.checkpoints,
            min_free_bytes=settings.min_free_bytes,
            inventory=inventory,
            blobs=open_blob_store(
                settings.blob_location, settings.blobs_token.get_secret_value(), settings.blobs_ca
            ),
            unpack=bundle.unpack,
        ),
        ports=RendezvousPorts(settings.address, settings.ports),
        secrets=SecretSource(node=settings.node, bus=bus),
        launcher=_launcher(settings, inventory, programs),
        shims=ShimHost(),
        outputs=outputs,
        telemetry=telemetry,
        changed=changed,
        disk_bytes=settings.job_disk_bytes,
    )
    return Agent(
        node=settings.node,
        address=settings.address,
        labels=settings.labels,
        host_memory_bytes=host_memory_bytes(),
        boot_id=procfs.boot_id(),
        heartbeat_s=settings.heartbeat_s,
        fence_after_s=settings.fence_after_s,
        bus=bus,
        clock=clock,
        ledger=ledger,
        inventory=inventory,
        roster=Roster(
            journal=journal,
            ledger=ledger,
            tools=tools,
            bus=bus,
            node=settings.node,
            grace_s=settings.stop_grace_s,
            keep_attempts=settings.keep_attempts,
        ),
        metrics=AgentMetrics(settings.node, telemetry.registry),
        old_checkpoints=OldCheckpoints(
            root=settings.checkpoints, keep_s=settings.keep_checkpoints_s, clock=clock
        ),
        changed=changed,
    )


@contextmanager
def exclusive(data_dir: Path) -> Iterator[None]:
    """Hold the node's folder: one agent at a time.

    Raises:
        Misconfigured: another agent holds it, or it cannot be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data_dir / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Misconfigured(
            f"FRENZY_DATA_DIR {data_dir}: {error.strerror}",
            suggestions=("name a folder that this user can write",),
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Misconfigured(
            f"another agent runs with FRENZY_DATA_DIR {data_dir}",
            suggestions=("stop it, or give this one its own folder",),
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _inventory(settings: OrchestratorSettings) -> DeviceInventory:
    if settings.emulated_devices:
        return EmulatedDevices(settings.emulated_devices)
    return NvmlDevices(AttemptUse(settings.data_dir))


def _launcher(
    settings: OrchestratorSettings, inventory: DeviceInventory, programs: Programs
) -> Launcher:
    users = _users(settings, programs)
    limits = Limits(
        processes=settings.job_processes,
        open_files=settings.job_open_files,
        file_bytes=settings.job_file_bytes,
        address_space_bytes=settings.job_address_space_bytes,
    )
    if limits.processes and users is None and not (settings.cgroups and counts_processes()):
        log.warning(
            "nothing bounds how many processes a job starts here: no cgroup with the pids "
            "controller can be made, and jobs have no users of their own (FRENZY_JOB_USERS)"
        )
    if len(str(settings.data_dir / TMP / "12345678")) > LONGEST_TMP:
        log.warning(
            "FRENZY_DATA_DIR %s is too long a path: sockets of data loaders must fit into names of "
            "107 bytes, so temporary files of jobs stay where the host has them",
            settings.data_dir,
        )
    return Launcher(
        node=settings.node,
        data_dir=settings.data_dir,
        interface=settings.interface or interface_of(settings.address),
        inventory=inventory,
        programs=programs,
        cgroups=settings.cgroups,
        fence_after_s=settings.fence_after_s,
        peer_grace_s=settings.peer_grace_s,
        limits=limits,
        users=users,
    )


def _users(settings: OrchestratorSettings, programs: Programs) -> JobUsers | None:
    users = open_job_users(settings.job_users, settings.job_groups)
    if users is not None:
        first = {programs.trainer[0], programs.script[0]}
        users.prepare_node(settings.data_dir, settings.checkpoints, sorted(first))
    return users
