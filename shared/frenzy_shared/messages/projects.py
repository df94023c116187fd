"""Bodies of the HTTP API about projects: what is decided for them, and what they use."""

from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_shared.messages.base import Wire

_LONGEST_KIND: Final = 100  # names of devices have about 30

Count = Annotated[int, Field(ge=0, le=1_000_000)]


class DeviceQuotaBody(Wire):
    """Devices of one kind, or of all kinds together.

    ``nominal`` is the project's own share: beyond it devices are borrowed, and given back when
    their owners need them. ``limit`` is never exceeded. Absent: no share, no limit.
    """

    nominal: Count | None = None
    limit: Count | None = None

    @model_validator(mode="after")
    def _the_share_is_within_the_limit(self) -> Self:
        if self.nominal is not None and self.limit is not None and self.nominal > self.limit:
            raise ValueError(f"nominal ({self.nominal}) is above limit ({self.limit})")
        return self


class ProjectSettings(Wire):
    """Everything that is decided for one project. It replaces what was decided before.

    ``weight`` is its part in the fair share beside the other projects'. ``devices`` counts devices
    of all kinds; ``kinds`` has further quotas by kind. ``max_unfinished_jobs`` refuses
    submissions; ``max_running_jobs`` lets jobs wait.
    """

    weight: Annotated[float, Field(ge=0.001, le=1000)] = 1.0
    devices: DeviceQuotaBody = DeviceQuotaBody()
    kinds: Annotated[dict[str, DeviceQuotaBody], Field(max_length=64)] = {}  # noqa: RUF012 - pydantic copies defaults
    max_unfinished_jobs: Count | None = None
    max_running_jobs: Count | None = None

    @field_validator("kinds")
    @classmethod
    def _names_of_kinds(cls, kinds: dict[str, DeviceQuotaBody]) -> dict[str, DeviceQuotaBody]:
        for kind in kinds:
            if not (
                1 <= len(kind) <= _LONGEST_KIND and kind.isprintable() and kind == kind.strip()
            ):
                raise ValueError(
                    f"a GPU kind's name has 1 to {_LONGEST_KIND} printable characters and no blank "
                    f"at its ends; this is {kind!r:.80}"
                )
        return kinds

    def project(self, name: ProjectName) -> Project:
        """Return the project's record."""
        return Project(
            name=name,
            weight=self.weight,
            devices=_quota(self.devices),
            kinds={kind: _quota(body) for kind, body in self.kinds.items()},
            max_unfinished_jobs=self.max_unfinished_jobs,
            max_running_jobs=self.max_running_jobs,
        )

    @classmethod
    def of(cls, project: Project) -> Self:
        """Return what is decided for a project."""
        return cls(
            weight=project.weight,
            devices=_body(project.devices),
            kinds={kind: _body(quota) for kind, quota in project.kinds.items()},
            max_unfinished_jobs=project.max_unfinished_jobs,
            max_running_jobs=project.max_running_jobs,
        )


class KindUse(Wire):
    """What a project's jobs hold of one kind; ``borrowed`` is what is beyond its own share."""

    kind: str
    used: int
    borrowed: int = 0


class ProjectView(Wire):
    """A project: what was decided, what its jobs do now, and what is worth knowing about that."""

    name: str
    settings: ProjectSettings
    running_jobs: int = 0
    waiting_jobs: int = 0
    uses: tuple[KindUse, ...] = ()
    notes: tuple[str, ...] = ()


class ProjectList(Wire):
    """Projects, by name."""

    projects: tuple[ProjectView, ...]


def _quota(body: DeviceQuotaBody) -> DeviceQuota:
    return DeviceQuota(nominal=body.nominal, limit=body.limit)


def _body(quota: DeviceQuota) -> DeviceQuotaBody:
    return DeviceQuotaBody(nominal=quota.nominal, limit=quota.limit)
