"""What the agent tells the shim: ``launch.json``, and the other files they share."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from frenzy_orchestrator.shim.confine import NO_LIMITS, Limits, RunAs, read_limits, read_user
from frenzy_orchestrator.shim.files import read_json

LAUNCH: Final = "launch.json"  # agent -> shim, before it starts
RUN: Final = "run.json"  # shim -> agent: who runs
EXIT: Final = "exit.json"  # shim -> agent: nothing is left
STOP: Final = "stop.json"  # agent -> shim: end the ranks
TOMBSTONE: Final = "tombstone"  # agent: this attempt must never start (again)
RELEASE: Final = "release.json"  # agent -> ranks that wait: train, and from which checkpoint
LEASE: Final = "lease"  # agent -> shim: boot time of the last answered heartbeat

MARKER: Final = "FRENZY_ATTEMPT_FOLDER"  # in every rank's environment: finds strays


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLaunch:
    """One rank's process. ``env`` is complete but for secrets: nothing is inherited."""

    rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything a shim needs to know.

    ``grace_s`` is the time between SIGTERM and SIGKILL when a stop does not say another;
    ``peer_grace_s`` the same for ranks whose gang has lost a member. ``cgroup`` "" means none.
    ``run_as`` None is the shim's own user; ``cover_tmp`` the folder that ranks see as /tmp, "": the
    host's.
    """

    ranks: tuple[RankLaunch, ...]
    device_locks: tuple[str, ...]
    cgroup: str
    fence_after_s: float
    grace_s: float
    peer_grace_s: float
    limits: Limits = NO_LIMITS
    run_as: RunAs | None = None
    cover_tmp: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the contents of ``launch.json``."""
        return asdict(self)


def read_launch(folder: Path) -> Launch | None:
    """Read ``launch.json``; ``None`` when it is missing or torn."""
    value = read_json(folder / LAUNCH)
    if value is None:
        return None
    ranks = tuple(
        RankLaunch(**{**rank, "argv": tuple(rank["argv"])}) for rank in value.pop("ranks")
    )
    return Launch(
        ranks=ranks,
        device_locks=tuple(value.pop("device_locks")),
        limits=read_limits(value.pop("limits", None)),
        run_as=read_user(value.pop("run_as", None)),
        **value,
    )
