"""Show a project: its quotas, what its jobs hold, and what is worth knowing about both. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.job import PLACED, JobRecord
from frenzy_shared.domain.project import Project
from frenzy_shared.messages.projects import KindUse, ProjectSettings, ProjectView

Use = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Who shares what: stored projects, unfinished jobs, and devices by kind."""

    projects: Mapping[ProjectName, Project]
    jobs: Sequence[JobRecord]
    devices: Mapping[str, int]

    @property
    def names(self) -> list[ProjectName]:
        """Return all projects that there is anything to show of, by name."""
        return sorted({*self.projects, *(job.project for job in self.jobs)})


def project_view(name: ProjectName, cluster: Cluster) -> ProjectView:
    """Show one project."""
    project = cluster.projects.get(name) or Project(name=name)
    jobs = [job for job in cluster.jobs if job.project == name]
    use: Counter[str] = Counter()
    for job in jobs:
        if job.placement is not None:
            use[job.placement.kind] += len(job.placement.devices)
    return ProjectView(
        name=name,
        settings=ProjectSettings.of(project),
        running_jobs=sum(job.state in PLACED for job in jobs),
        waiting_jobs=sum(job.state not in PLACED for job in jobs),
        uses=tuple(
            KindUse(kind=kind, used=use[kind], borrowed=_borrowed(project, kind, use, cluster))
            for kind in sorted(use)
        ),
        notes=(
            *_unheard_of(name, cluster),
            *_over_limits(project, jobs, use),
            *_shares(project, cluster),
        ),
    )


def _borrowed(project: Project, kind: str, use: Use, cluster: Cluster) -> int:
    """Return how many devices of a kind are beyond what is the project's own.

    Where no project owns any, nobody borrows.
    """
    if not any(other.has_share for other in cluster.projects.values()):
        return 0
    own = project.kinds[kind].nominal if kind in project.kinds else None
    shares = [(own, use[kind]), (project.devices.nominal, sum(use.values()))]
    over = max((used - share for share, used in shares if share is not None), default=use[kind])
    return min(max(over, 0), use[kind])


def _unheard_of(name: ProjectName, cluster: Cluster) -> Iterator[str]:
    """Say when there is nothing to show: the name may be a mistake."""
    if name not in cluster.names:
        yield (
            "nothing was ever set for this project and it has no unfinished jobs: these are the "
            "defaults that it would begin with"
        )


def _over_limits(project: Project, jobs: Sequence[JobRecord], use: Use) -> Iterator[str]:
    """Say which limits came after what runs already: nothing is stopped for them."""
    limits = [(f"x {kind}", quota.limit, use.get(kind, 0)) for kind, quota in project.kinds.items()]
    limits.append(("GPUs", project.devices.limit, sum(use.values())))
    placed = sum(job.state in PLACED for job in jobs)
    limits.append(("running jobs", project.max_running_jobs, placed))
    for what, limit, used in limits:
        if limit is not None and used > limit:
            yield (
                f"it uses {used} {what}, more than the limit of {limit}: nothing is stopped for "
                "that, and nothing more starts until use is below the limit"
            )
    most = project.max_unfinished_jobs
    if most is not None and len(jobs) > most:
        yield f"it has {len(jobs)} unfinished jobs, more than {most}: new submissions are refused"


def _shares(project: Project, cluster: Cluster) -> Iterator[str]:
    """Say where names are unknown, and where own shares cannot all be had."""
    for kind, quota in project.kinds.items():
        total = cluster.devices.get(kind)
        if total is None:
            known = ", ".join(sorted(cluster.devices)) or "none"
            yield f"no node has the kind {kind!r}; present: {known}"
        elif quota.nominal:
            promised = sum(
                other.kinds[kind].nominal or 0
                for other in cluster.projects.values()
                if kind in other.kinds
            )
            if promised > total:
                yield (
                    f"all projects' own shares of {kind} add up to {promised}, and the cluster "
                    f"has {total}: they cannot all be had at once"
                )
