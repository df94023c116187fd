"""Describe the processes of an attempt: argument lists and complete environments.

A rank's environment is built from nothing: a short list of harmless variables of the host, then
the plan's, then the user's, then Frenzy's own, which nobody can override. The agent's own
variables (where the servers are, its secrets) never reach user code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# Variables of the host that programs need to work at all, or to find their libraries.
_FROM_HOST: Final = frozenset(
    {"HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME"}
)
_FROM_HOST_PREFIXES: Final = ("LC_", "NCCL_")
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRank:
    """One rank of this node and the device it runs on.

    ``visible_device`` is what CUDA_VISIBLE_DEVICES calls it; ``memory_bytes`` and ``speed`` are
    for emulated devices.
    """

    rank: int
    local_rank: int
    visible_device: str
    emulated: bool
    memory_bytes: int
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A user's own program, relative to the work folder."""

    path: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """How ranks are started on this node. ``trainer`` and ``script`` are argument prefixes."""

    trainer: tuple[str, ...]
    script: tuple[str, ...]
    bin_folder: str  # first on PATH: the interpreter's own folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What all ranks of an attempt share on this node. Paths are absolute texts; "" is absent."""

    job: str
    attempt: int
    world_size: int
    master_host: str
    master_port: int
    ranks: tuple[LocalRank, ...]
    script: Script | None
    interface: str  # network interface of the gang's traffic; "" lets the library choose
    plan_file: str
    deepspeed_file: str
    checkpoint_folder: str
    resume_from: str
    data: str
    tokenizer: str
    traceparent: str
    plan_env: Mapping[str, str] = field(default_factory=dict[str, str])
    user_env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: frozenset[str] = frozenset()  # variables that the shim adds
    array_index: str = ""  # of a job that is part of an array
    release_file: str = ""  # what ranks wait for before they train; "": nothing
    tmp: str = ""  # folder of temporary files; "" leaves the host's


def argv(gang: Gang, programs: Programs) -> tuple[str, ...]:
    """Return the command of every rank: the built-in trainer, or the user's script."""
    if gang.script is None:
        return programs.trainer
    return (*programs.script, gang.script.path, *gang.script.arguments)


def environment(
    gang: Gang,
    local: LocalRank,
    *,
    report_file: str,
    programs: Programs,
    host: Mapping[str, str],
) -> dict[str, str]:
    """Return one rank's environment, whole but for the secrets."""
    env = {
        name: value
        for name, value in host.items()
        if name in _FROM_HOST or name.startswith(_FROM_HOST_PREFIXES)
    }
    env["PATH"] = f"{programs.bin_folder}:{host.get('PATH', _DEFAULT_PATH)}"
    env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    env |= gang.plan_env
    env |= gang.user_env
    env = {name: value for name, value in env.items() if name not in gang.secrets}
    env |= _rendezvous(gang, local)
    env |= _paths(gang, report_file)
    env |= _device(gang, local)
    if gang.interface:
        env |= {"GLOO_SOCKET_IFNAME": gang.interface, "NCCL_SOCKET_IFNAME": gang.interface}
    return env


def _rendezvous(gang: Gang, local: LocalRank) -> dict[str, str]:
    return {
        "RANK": str(local.rank),
        "LOCAL_RANK": str(local.local_rank),
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_WORLD_SIZE": str(len(gang.ranks)),
        "MASTER_ADDR": gang.master_host,
        "MASTER_PORT": str(gang.master_port),
    }


def _paths(gang: Gang, report_file: str) -> dict[str, str]:
    env = {
        "FRENZY_JOB_ID": gang.job,
        "FRENZY_ATTEMPT": str(gang.attempt),
        "FRENZY_PLAN": gang.plan_file,
        "FRENZY_DEEPSPEED_CONFIG": gang.deepspeed_file,
        "FRENZY_CHECKPOINT_DIR": gang.checkpoint_folder,
        "FRENZY_REPORT_FILE": report_file,
    }
    optional = {
        "FRENZY_RESUME_FROM": gang.resume_from,
        "FRENZY_DATA": gang.data,
        "FRENZY_TOKENIZER": gang.tokenizer,
        "FRENZY_ARRAY_INDEX": gang.array_index,
        "FRENZY_RELEASE_FILE": gang.release_file,
        "FRENZY_TRACEPARENT": gang.traceparent,
        "TMPDIR": gang.tmp,
    }
    return env | {name: value for name, value in optional.items() if value}


def _device(gang: Gang, local: LocalRank) -> dict[str, str]:
    if local.emulated:
        return {
            "DS_ACCELERATOR": "cpu",
            "CUDA_VISIBLE_DEVICES": "",
            "FRENZY_EMULATED_MEMORY_BYTES": str(local.memory_bytes),
            "FRENZY_EMULATED_SPEED": f"{local.speed:g}",
        }
    # All of the node's share, in local-rank order: scripts select by LOCAL_RANK, as under torchrun.
    ordered = sorted(gang.ranks, key=lambda rank: rank.local_rank)
    return {"CUDA_VISIBLE_DEVICES": ",".join(rank.visible_device for rank in ordered)}
