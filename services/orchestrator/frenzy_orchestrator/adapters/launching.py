"""Write ``launch.json``: the description of an attempt's processes that its shim obeys."""

import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from frenzy_orchestrator.adapters.devices.port import DeviceInventory
from frenzy_orchestrator.adapters.devices.use import lock_path
from frenzy_orchestrator.adapters.journal import AttemptFolder
from frenzy_orchestrator.adapters.preparation import Inputs
from frenzy_orchestrator.adapters.users import JobUsers
from frenzy_orchestrator.core.launch import Gang, LocalRank, Programs, Script, argv, environment
from frenzy_orchestrator.shim import locks
from frenzy_orchestrator.shim.confine import NO_LIMITS, Limits, RunAs
from frenzy_orchestrator.shim.files import write_json
from frenzy_orchestrator.shim.launch import LAUNCH, MARKER, RELEASE, Launch, RankLaunch
from frenzy_shared.domain.cluster import Device
from frenzy_shared.messages.arrays import INDEX_LABEL
from frenzy_shared.messages.v1 import DesiredAttempt

# Python's own sockets add 33 bytes (/pymp-.../listener-...), and 107 are the most.
LONGEST_TMP: Final = 72
_SHARED_TMP: Final = ("/tmp/", "/var/tmp/")  # noqa: S108 - what would be covered, not what is used


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Knows what this node adds to an order. ``cgroups``: use them where they can be made."""

    node: str
    data_dir: Path
    interface: str
    inventory: DeviceInventory
    programs: Programs
    cgroups: bool
    fence_after_s: float
    peer_grace_s: float
    limits: Limits = NO_LIMITS
    users: JobUsers | None = None

    def write(self, folder: AttemptFolder, inputs: Inputs) -> None:
        """Describe the attempt's processes on disk. May block: it looks at the devices."""
        order = folder.journal.order
        gang = self._gang(folder, inputs)
        command = argv(gang, self.programs)
        user = self.users.of(order.job_number) if self.users else None
        if self.users and user:
            self.users.hand_over(folder, inputs, user)
        launch = Launch(
            ranks=tuple(self._rank(folder, gang, local, command, user) for local in gang.ranks),
            device_locks=tuple(
                str(lock_path(self.data_dir, entry.device)) for entry in order.ranks
            ),
            cgroup=f"frenzy-{self.node}-{folder.path.name}" if self.cgroups else "",
            # Longer than what the control plane counts on would let two attempts live at once.
            fence_after_s=min(self.fence_after_s, order.fence_after_s or self.fence_after_s),
            grace_s=order.grace_s,
            peer_grace_s=self.peer_grace_s,
            limits=self.limits,
            run_as=user,
            cover_tmp=str(folder.tmp) if user and self._tmp_is_free(folder, inputs) else "",
        )
        write_json(folder.path / LAUNCH, launch.to_json())

    def locks_free(self, folder: AttemptFolder) -> bool:
        """Tell whether nobody holds a device of the attempt any more."""
        paths = [lock_path(self.data_dir, rank.device) for rank in folder.journal.order.ranks]
        return all(locks.is_free(path) for path in paths if path.exists())

    def _tmp_is_free(self, folder: AttemptFolder, inputs: Inputs) -> bool:
        """Tell whether ranks can have a /tmp of their own: nothing they need lies in the host's."""
        needed = (str(folder.path), self.programs.bin_folder, *astuple(inputs))
        return not any(path.startswith(_SHARED_TMP) for path in needed)

    def _rank(
        self,
        folder: AttemptFolder,
        gang: Gang,
        local: LocalRank,
        command: tuple[str, ...],
        user: RunAs | None,
    ) -> RankLaunch:
        own = folder.rank(local.rank)
        about = self.users.environment(user, folder) if self.users and user else {}
        env = environment(
            gang,
            local,
            report_file=str(own / "report.jsonl"),
            programs=self.programs,
            host={**os.environ, **about},
        )
        return RankLaunch(
            rank=local.rank,
            argv=command,
            env={**env, MARKER: str(folder.path)},
            cwd=str(folder.work),
            stdout=str(own / "stdout.log"),
            stderr=str(own / "stderr.log"),
        )

    def _gang(self, folder: AttemptFolder, inputs: Inputs) -> Gang:
        order = folder.journal.order
        spec, plan = order.spec, order.plan
        script = None
        if spec is not None and spec.entrypoint is not None:
            script = Script(path=spec.entrypoint.script, arguments=spec.entrypoint.args)
        host, _, port = order.rendezvous.rpartition(":")
        return Gang(
            job=order.job,
            attempt=order.attempt,
            world_size=order.world_size,
            master_host=host.strip("[]"),
            master_port=int(port),
            ranks=self._local_ranks(order),
            script=script,
            interface=self.interface,
            plan_file=str(folder.path / "plan.json"),
            deepspeed_file=str(folder.path / "deepspeed.json"),
            checkpoint_folder=inputs.checkpoints,
            resume_from=inputs.resume_from,
            data=inputs.data,
            tokenizer=inputs.tokenizer,
            traceparent=order.traceparent,
            tmp=str(folder.tmp) if len(str(folder.tmp)) <= LONGEST_TMP else "",
            plan_env=dict(plan.environment) if plan is not None else {},
            user_env=spec.env if spec is not None else {},
            secrets=frozenset(spec.secrets) if spec is not None else frozenset(),
            release_file=str(folder.path / RELEASE) if order.warm else "",
            array_index=spec.labels.get(INDEX_LABEL, "") if spec is not None else "",
        )

    def _local_ranks(self, order: DesiredAttempt) -> tuple[LocalRank, ...]:
        present: Mapping[str, Device] = {
            str(device.id): device for device in self.inventory.devices()
        }
        return tuple(
            LocalRank(
                rank=entry.rank,
                local_rank=entry.local_rank,
                visible_device=self.inventory.visible_name(entry.device),
                emulated=present[entry.device].emulated,
                memory_bytes=present[entry.device].memory_bytes,
                speed=present[entry.device].relative_speed,
            )
            for entry in order.ranks
        )
