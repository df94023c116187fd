"""Projects: who shares the cluster, and what each may use of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from frenzy_shared.domain.ids import ProjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceQuota:
    """Devices of one kind, or of all kinds together.

    ``nominal`` is the project's own share: it gets those before anybody borrows them. What it
    uses beyond is borrowed, and given back when owners need it. ``limit`` is never exceeded.
    None: no share of its own, no limit.
    """

    nominal: int | None = None
    limit: int | None = None


NO_QUOTA: Final = DeviceQuota()


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What is decided for one project; a project without a record has all the defaults.

    ``weight`` is its part in the fair share, relative to the others'.
    """

    name: ProjectName
    weight: float = 1.0
    devices: DeviceQuota = NO_QUOTA  # of all kinds together
    kinds: Mapping[str, DeviceQuota] = field(default_factory=dict[str, DeviceQuota])
    max_unfinished_jobs: int | None = None  # refused at submission
    max_running_jobs: int | None = None  # wait in the queue

    @property
    def has_share(self) -> bool:
        """Tell whether any devices are the project's own."""
        return any(quota.nominal for quota in (self.devices, *self.kinds.values()))
