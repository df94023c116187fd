"""Settings of the node agent, read from FRENZY_* environment variables."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from frenzy_shared.domain.ids import is_name
from frenzy_shared.settings import Seconds, TimingSettings
from frenzy_shared.units import MIB

_EPHEMERAL_START: Final = 32_768
_USER_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


class OrchestratorSettings(TimingSettings):
    """One node: its name, its address, its devices and its folders.

    ``address`` is where the ranks of other nodes reach this node's. ``emulated_devices`` is
    ``kind:count:memory:speed,...``; empty means the machine's NVIDIA devices. ``blobs`` is a
    folder or the gateway's URL. ``interface`` "" finds the one that has the address.
    """

    node: str
    """Name of the node."""
    address: str = "127.0.0.1"
    """Where the ranks of other nodes reach this node's."""
    emulated_devices: str = ""
    """`kind:count:memory:speed,...`; empty: the NVIDIA devices of the machine."""
    node_labels: str = ""
    """`key=value,...`: what jobs can ask for with `resources.node_labels`."""
    blobs: str = ""
    """A folder, or the gateway's URL; empty: `<data_dir>/blobs`."""
    blobs_token: SecretStr = SecretStr("")
    """Token for a gateway URL."""
    blobs_ca: Path | None = None
    """PEM of the authority of the gateway's certificate; empty: the system's authorities."""
    checkpoints_dir: Path | None = None
    """Shared by all nodes; empty: `<data_dir>/checkpoints`."""
    interface: str = ""
    """Network interface of the ranks; empty: the one that has the address."""
    rendezvous_ports: str = "20000-29999"
    """Ports that gangs meet on."""
    cgroups: bool = True
    """Put ranks into cgroups where they can be written."""
    min_free_bytes: Annotated[int, Field(ge=0)] = 256 * MIB
    """Less free disk refuses new attempts."""
    log_quota_bytes: Annotated[int, Field(ge=1024)] = 128 * MIB
    """A rank's output beyond this stops the job."""
    keep_attempts: Annotated[int, Field(ge=0, le=10_000)] = 20
    """Folders of ended attempts that stay."""
    keep_checkpoints_s: Annotated[float, Field(ge=0)] = 30 * 86_400.0
    """Checkpoints of ended jobs stay so long, exported models for ever; 0: both for ever."""
    peer_grace_s: Seconds = 10.0
    """Between the first failed rank and SIGKILL for its peers."""
    job_users: str = ""
    """Unix users of ranks: numbers `first-last`, one a job, or one name; empty: the agent's."""
    job_groups: str = ""
    """Further groups of `FRENZY_JOB_USERS`, `name,...`: those that own the GPUs' device files."""
    job_processes: Annotated[int, Field(ge=0)] = 4096
    """Processes and threads of one rank; 0: no bound."""
    job_open_files: Annotated[int, Field(ge=0)] = 65_536
    """Open files of one process of a rank; 0: as the agent."""
    job_file_bytes: Annotated[int, Field(ge=0)] = 0
    """Size of one file that a rank writes; 0: no bound."""
    job_address_space_bytes: Annotated[int, Field(ge=0)] = 0
    """Address space of one process of a rank, not for CUDA, which reserves much; 0: no bound."""
    job_disk_bytes: Annotated[int, Field(ge=0)] = 0
    """Disk for an attempt's work folder, inputs, output and temporary files; 0: no bound."""

    @property
    def checkpoints(self) -> Path:
        """Return the folder of all jobs' checkpoints, shared by nodes in a cluster of several."""
        return self.checkpoints_dir or self.data_dir / "checkpoints"

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Return the node's labels, by key."""
        return _labels(self.node_labels)

    @property
    def blob_location(self) -> str:
        """Return where blobs are; by default a folder of this node."""
        return self.blobs or str(self.data_dir / "blobs")

    @property
    def ports(self) -> range:
        """Return the ports that gangs may meet on."""
        first, _, last = self.rendezvous_ports.partition("-")
        return range(int(first), int(last) + 1)

    @field_validator("node")
    @classmethod
    def _node(cls, node: str) -> str:
        if not is_name(node):
            raise ValueError("use 1-63 characters of a-z, 0-9 and '-', no '-' at either end")
        return node

    @field_validator("node_labels")
    @classmethod
    def _readable_labels(cls, text: str) -> str:
        _labels(text)
        return text

    @field_validator("address")
    @classmethod
    def _address(cls, address: str) -> str:
        ipaddress.ip_address(address)
        return address

    @field_validator("job_users")
    @classmethod
    def _job_users(cls, text: str) -> str:
        first, dash, last = text.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            if not 1000 <= int(first) <= int(last) < 2**31:
                raise ValueError("write first-last, for example 200000-299999, from 1000 on")
        elif text and not _USER_NAME.fullmatch(text):
            raise ValueError("write numbers first-last, or the name of a user")
        return text

    @field_validator("rendezvous_ports")
    @classmethod
    def _ports(cls, text: str) -> str:
        first, dash, last = text.partition("-")
        numbers = first.isdecimal() and last.isdecimal()
        if not dash or not numbers or not 1024 <= int(first) <= int(last) <= 65_535:
            raise ValueError("write first-last, for example 20000-29999, within 1024-65535")
        return text

    @model_validator(mode="after")
    def _fence_outlives_heartbeats(self) -> Self:
        if self.fence_after_s <= 2 * self.heartbeat_s:
            raise ValueError(
                f"FRENZY_FENCE_AFTER_S ({self.fence_after_s:g}) must be more than twice "
                f"FRENZY_HEARTBEAT_S ({self.heartbeat_s:g}): one lost heartbeat must not stop jobs"
            )
        return self

    @model_validator(mode="after")
    def _absolute_folders(self) -> Self:
        for name in ("data_dir", "checkpoints_dir"):
            path = getattr(self, name)
            if path is not None and not path.is_absolute():
                raise ValueError(f"FRENZY_{name.upper()} must be an absolute path, not {path}")
        return self


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``key=value,...``; raise ``ValueError`` for anything else."""
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not is_name(key) or not 0 < len(value) <= 256:
            raise ValueError(f"{part!r}: write key=value,...; keys are a-z, 0-9 and '-'")
        if key in labels:
            raise ValueError(f"label {key!r} is there twice")
        labels[key] = value
    return tuple(sorted(labels.items()))
