"""Projects and their quotas: shown with what jobs use, and replaced by administrators."""

import asyncio
import logging
from dataclasses import dataclass

from frenzy_gateway.callers import Caller
from frenzy_gateway.project_views import Cluster, project_view
from frenzy_gateway.submission import check_project
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_shared.domain.job import TERMINAL, JobState
from frenzy_shared.messages.projects import ProjectList, ProjectSettings, ProjectView
from frenzy_shared.state.decisions import project_changed
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

_LIVE = frozenset(JobState) - TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Projects:
    """What callers may see and decide about projects."""

    state: StateStore

    async def list(self, caller: Caller) -> ProjectList:
        """Show every project with a record or unfinished jobs that the caller may see."""
        cluster = await self._cluster()
        seen = (name for name in cluster.names if caller.sees(name))
        return ProjectList(projects=tuple(project_view(name, cluster) for name in seen))

    async def get(self, caller: Caller, name: str) -> ProjectView:
        """Show one project; one that nobody decided anything about has the defaults."""
        project = check_project(name)
        caller.require(project)
        return project_view(project, await self._cluster())

    async def put(self, caller: Caller, name: str, settings: ProjectSettings) -> ProjectView:
        """Replace what is decided for a project; jobs that run are left alone."""
        project = check_project(name)
        decided = settings.project(project)
        await self.state.put_project(decided, project_changed(decided, caller.name))
        log.info("%s set the quotas of project %s: %s", caller.name, project, settings)
        return project_view(project, await self._cluster())

    async def _cluster(self) -> Cluster:
        projects, jobs, cluster = await asyncio.gather(
            self.state.projects(), self.state.jobs_in(_LIVE), self.state.cluster()
        )
        return Cluster(
            projects={project.name: project for project in projects},
            jobs=jobs,
            devices={kind.kind: kind.total for kind in summarize_kinds(cluster.nodes)},
        )
