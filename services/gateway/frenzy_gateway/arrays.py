"""Arrays of jobs: submitted as one, cancelled as one; otherwise jobs like any other."""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from frenzy_gateway.callers import Caller
from frenzy_gateway.dependencies import find_dependencies
from frenzy_gateway.expansion import about_element, expand
from frenzy_gateway.service import GatewayService
from frenzy_gateway.submission import (
    check_key,
    job_id_of,
    name_of,
    new_submission,
    require_same,
    spec_digest,
)
from frenzy_shared.auth import ALL_PROJECTS
from frenzy_shared.domain.ids import JobId, ProjectName, is_name
from frenzy_shared.domain.job import TERMINAL, JobRecord, JobState
from frenzy_shared.errors import NotFound, QuotaExceeded
from frenzy_shared.messages import http
from frenzy_shared.messages.arrays import LABEL
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.telemetry import traceparent

log = logging.getLogger(__name__)

_PAGE = 200
_LIVE = frozenset(JobState) - TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """What callers do to whole arrays."""

    service: GatewayService

    async def submit(
        self, caller: Caller, spec: JobSpec, project: str, key: str | None, *, force_queue: bool
    ) -> http.ArrayView:
        """Accept all jobs of an array, each once, whatever happens to the answer on its way.

        Everything is checked before the first job is stored. If the store fails in between, the
        same request with the same key goes on where it stopped.
        """
        service, own = self.service, self.service.ids.new_id() if key is None else check_key(key)
        name, digest = service.writable(caller, project), spec_digest(spec)
        array = job_id_of(name, f"array {own}")  # no key holds a blank: never another job's id
        elements = expand(spec, array, name_of(spec))
        jobs = [job_id_of(name, f"array {own} {index}") for index in range(len(elements))]
        missing = await self._missing(jobs, digest)
        waits_for: tuple[JobId, ...] = ()
        if jobs[-1] in missing:
            waits_for = await self._check(name, spec, elements, jobs, force_queue=force_queue)
        prepared = []
        for index, (job, element) in enumerate(zip(jobs, elements, strict=True)):
            if job not in missing:
                continue
            with about_element(spec, index):
                one = new_submission(
                    element,
                    job=job,
                    project=name,
                    key=job,
                    submitted_by=caller.name,
                    force_queue=force_queue,
                    traceparent=traceparent(),
                    waits_for=waits_for,
                    after=_lane(spec, jobs, index),
                    digest=digest,
                )
            prepared.append(one)
        created = False
        for one in prepared:
            created |= (await service.accept(one)).created
        log.info("%s submitted array %s of %s jobs", caller.name, array, len(jobs))
        return http.ArrayView(id=array, jobs=tuple(jobs), created=created)

    async def cancel(self, caller: Caller, array: str) -> http.ArrayView:
        """Cancel the jobs of an array that are not over, the last one first."""
        found = [record async for record in self._jobs(caller, array)]
        if not found:
            raise NotFound(f"no array {array[:80]!r}", suggestions=("list jobs: GET /api/v1/jobs",))
        waiting = [record.id for record in found if record.state not in TERMINAL]
        for job in waiting:
            await self._cancel_one(caller, job)
        return http.ArrayView(id=array, jobs=tuple(reversed(waiting)), created=False)

    async def _missing(self, jobs: Sequence[JobId], digest: str) -> frozenset[JobId]:
        """Return which jobs are not stored; those that are must be of the same array."""
        missing = set()
        for job in jobs:
            record = await self.service.state.job(job)
            if record is None:
                missing.add(job)
            else:
                require_same(record, digest)
        return frozenset(missing)

    async def _cancel_one(self, caller: Caller, job: JobId) -> None:
        record = await self.service.record(caller, job)
        if record.state not in TERMINAL:  # it may have ended meanwhile
            await self.service.cancel(caller, job)

    async def _jobs(self, caller: Caller, array: str) -> AsyncIterator[JobRecord]:
        """Yield the records of an array that the caller may see, the last one first."""
        project = None if caller.project == ALL_PROJECTS else ProjectName(caller.project)
        token, more = "", is_name(array)
        while more:
            page = await self.service.state.list_jobs(
                project=project,
                states=frozenset(),
                page_size=_PAGE,
                page_token=token,
                labels={LABEL: array},
            )
            for record in page.jobs:
                yield record
            token = page.next_token
            more = bool(token)

    async def _check(
        self,
        name: ProjectName,
        spec: JobSpec,
        elements: Sequence[JobSpec],
        jobs: Sequence[JobId],
        *,
        force_queue: bool,
    ) -> tuple[JobId, ...]:
        """Check all jobs before any is stored; return what they wait for."""
        service = self.service
        await service.readiness.require_room()
        waits_for = await find_dependencies(service.state, name, elements[0], jobs[0])
        await self._require_quota(name, jobs)
        for index, element in enumerate(elements):
            with about_element(spec, index):
                await service.secrets.require(name, element)
                await service.validate(element, force_queue=force_queue)
        return waits_for

    async def _require_quota(self, name: ProjectName, jobs: Sequence[JobId]) -> None:
        """Refuse an array that does not fit the project's quota as a whole."""
        projects = await self.service.state.projects()
        most = next((one.max_unfinished_jobs for one in projects if one.name == name), None)
        if most is None:
            return
        unfinished = await self.service.state.jobs_in(_LIVE)
        others = [job for job in unfinished if job.project == name and job.id not in jobs]
        if len(others) + len(jobs) > most:
            raise QuotaExceeded(
                f"project {name!r} has {len(others)} of {most} unfinished jobs; an array of "
                f"{len(jobs)} does not fit",
                suggestions=("wait for jobs to finish, or submit a smaller array",),
            )


def _lane(spec: JobSpec, jobs: Sequence[JobId], index: int) -> tuple[JobId, ...]:
    """Return the job that must be over before this one starts, with ``at_most``."""
    lanes = spec.array.at_most if spec.array is not None else None
    return (jobs[index - lanes],) if lanes is not None and index >= lanes else ()
