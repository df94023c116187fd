"""The clients: ``Client`` blocks, ``AsyncClient`` awaits; both drive the same operations."""

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import partial
from typing import Self

import httpx

from frenzy import config, operations, specs, uploads
from frenzy._version import __version__
from frenzy.admin import Admin, AsyncAdmin
from frenzy.exchange import Operation, Retry
from frenzy.integrations import AsyncIntegrations, Integrations
from frenzy.job import AsyncJob, Job
from frenzy.secrets import AsyncSecrets, Secrets
from frenzy.transport import AsyncTransport, Transport
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.estimate import EstimateView
from frenzy_shared.messages.http import (
    ArrayView,
    JobList,
    JobView,
    NodeTokenView,
    NodeView,
    QueueView,
    ReadinessView,
    VersionView,
)
from frenzy_shared.messages.projects import ProjectSettings, ProjectView

_PAGE_SIZE = 100


class Client:
    """A connection to one Frenzy server.

    Without arguments it uses FRENZY_URL, FRENZY_TOKEN and FRENZY_CA (a file of certificates for a
    server whose own is not of a public authority), then what ``frenzy up`` wrote. With the URLs of
    several gateways, commas between them, it begins with any and goes on to the next when one
    fails.
    Errors are ``FrenzyError`` subclasses; calls are retried where that is safe (it always is:
    submits carry an idempotency key).
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca: str | None = None,
        retry: Retry | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        server = config.resolve(url, token, ca)
        self.url = server.url
        self._retry = retry or Retry()
        self._http = httpx.Client(
            headers=_headers(server.token),
            transport=transport,
            verify=server.verify(),
        )
        self._io = Transport(self._http, server.urls)

    def plan(self, spec: specs.SpecSource, *, project: str = "default") -> PlanSet:
        """Return ranked plans for this cluster. No side effects; local files are not sent."""
        local = specs.read(spec)
        return self._io.run(operations.plan(self._retry, local.preview(), project=project))

    def estimate(
        self, model: specs.SpecSource, *, gpu: str | None = None, **overrides: str | int | None
    ) -> EstimateView:
        """Return what one exact configuration takes: memory by term and moment, RAM, disk, speed.

        ``model`` is a preset, a config.json, or a job's specification, whose pins count;
        ``overrides`` (fields of ``Overrides``: gpus, zero_stage, micro_batch_size, ...) change it.
        """
        spec, changes = specs.exact(model, overrides)
        return self._io.run(operations.estimate(self._retry, spec, gpu=gpu, overrides=changes))

    def submit(
        self,
        spec: specs.SpecSource,
        *,
        project: str = "default",
        idempotency_key: str | None = None,
        force_queue: bool = False,
    ) -> Job:
        """Submit a job: pack local paths, send what the server lacks, create the job.

        With the same ``idempotency_key`` and specification the same job comes back.

        Raises:
            NoFeasiblePlan: it can never fit this cluster (``force_queue`` waits for new nodes).
            InvalidSpec: naming the wrong field.
        """
        with uploads.packed(specs.read(spec)) as ready:
            self._io.run(operations.upload(self._retry, ready.blobs))
        done = self._io.run(
            operations.submit(
                self._retry,
                ready.spec,
                key=idempotency_key or str(uuid.uuid4()),
                project=project,
                force_queue=force_queue,
            )
        )
        return Job(self._io, self._retry, done.job)

    def submit_array(
        self,
        spec: specs.SpecSource,
        *,
        project: str = "default",
        idempotency_key: str | None = None,
        force_queue: bool = False,
    ) -> ArrayView:
        """Submit the many jobs of a specification with ``array``; see ``submit``."""
        with uploads.packed(specs.read(spec)) as ready:
            self._io.run(operations.upload(self._retry, ready.blobs))
        return self._io.run(
            operations.submit_array(
                self._retry,
                ready.spec,
                key=idempotency_key or str(uuid.uuid4()),
                project=project,
                force_queue=force_queue,
            )
        )

    def cancel_array(self, array: str) -> ArrayView:
        """Cancel the jobs of an array that are not over; the answer names them."""
        return self._io.run(operations.cancel_array(self._retry, array))

    def job(self, job: str) -> Job:
        """Return one job by id."""
        return Job(self._io, self._retry, self._io.run(operations.get(self._retry, job)))

    def jobs(
        self,
        *,
        project: str | None = None,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Job]:
        """Yield jobs, newest first, over as many pages as there are."""
        ask = _Pages(self._retry, project, tuple(states), labels or {})
        while ask.more:
            for view in ask.take(self._io.run(ask.next())):
                yield Job(self._io, self._retry, view)

    def queue(self, *, project: str | None = None, limit: int = 100) -> QueueView:
        """Return the first waiting jobs in the order of the policy, with predicted times."""
        return self._io.run(operations.queue(self._retry, project=project, limit=limit))

    def policy(self) -> str:
        """Return the name of the scheduler's policy, asked once.

        Raises:
            Unavailable: the scheduler does not answer now.
        """
        return self._io.run(operations.policy())

    def record(self, *, cycles: int = 1) -> bytes:
        """Return the scheduler's last cycles, for ``frenzy admin replay``; administrators only."""
        return self._io.run(operations.record(self._retry, cycles=cycles))

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes with their devices."""
        return self._io.run(operations.nodes(self._retry))

    def node_token(self, *, node: str = "", expires_in_s: float = 900.0) -> NodeTokenView:
        """Make a one-time token with which a machine becomes a node."""
        return self._io.run(
            operations.node_token(self._retry, node=node, expires_in_s=expires_in_s)
        )

    def revoke_node(self, node: str) -> None:
        """Shut a node out: its connections end at once."""
        self._io.run(operations.revoke_node(self._retry, node))

    @property
    def admin(self) -> Admin:
        """Return what only administrators may do."""
        return Admin(self._io, self._retry)

    @property
    def integrations(self) -> Integrations:
        """Return what lets programs follow events on the bus."""
        return Integrations(self._io, self._retry)

    @property
    def secrets(self) -> Secrets:
        """Return what keeps secrets that jobs may use."""
        return Secrets(self._io, self._retry)

    def projects(self) -> tuple[ProjectView, ...]:
        """Return the projects that have quotas or unfinished jobs, by name."""
        return self._io.run(operations.projects(self._retry))

    def project(self, name: str) -> ProjectView:
        """Return one project: what was decided for it, and what its jobs use."""
        return self._io.run(operations.project(self._retry, name))

    def set_project(self, name: str, settings: ProjectSettings) -> ProjectView:
        """Replace everything that is decided for a project; ``notes`` say what to know about it.

        Raises:
            Forbidden: only an administrator of all projects may.
        """
        return self._io.run(operations.set_project(self._retry, name, settings))

    def readiness(self) -> ReadinessView:
        """Return what works on the server, and what does not."""
        return self._io.run(operations.readiness(self._retry))

    def version(self) -> VersionView:
        """Return the server's version."""
        return self._io.run(operations.version(self._retry))

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """``Client`` for asyncio: the same methods, awaited."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca: str | None = None,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        server = config.resolve(url, token, ca)
        self.url = server.url
        self._retry = retry or Retry()
        self._http = httpx.AsyncClient(
            headers=_headers(server.token),
            transport=transport,
            verify=server.verify(),
        )
        self._io = AsyncTransport(self._http, server.urls)

    async def plan(self, spec: specs.SpecSource, *, project: str = "default") -> PlanSet:
        """Return ranked plans for this cluster. No side effects; local files are not sent."""
        local = specs.read(spec)
        return await self._io.run(operations.plan(self._retry, local.preview(), project=project))

    async def estimate(
        self, model: specs.SpecSource, *, gpu: str | None = None, **overrides: str | int | None
    ) -> EstimateView:
        """Return what one exact configuration takes; see ``Client.estimate``."""
        spec, changes = specs.exact(model, overrides)
        return await self._io.run(
            operations.estimate(self._retry, spec, gpu=gpu, overrides=changes)
        )

    async def submit(
        self,
        spec: specs.SpecSource,
        *,
        project: str = "default",
        idempotency_key: str | None = None,
        force_queue: bool = False,
    ) -> AsyncJob:
        """Submit a job; see ``Client.submit``."""
        async with uploads.packed_async(specs.read(spec)) as ready:
            await self._io.run(operations.upload(self._retry, ready.blobs))
        done = await self._io.run(
            operations.submit(
                self._retry,
                ready.spec,
                key=idempotency_key or str(uuid.uuid4()),
                project=project,
                force_queue=force_queue,
            )
        )
        return AsyncJob(self._io, self._retry, done.job)

    async def submit_array(
        self,
        spec: specs.SpecSource,
        *,
        project: str = "default",
        idempotency_key: str | None = None,
        force_queue: bool = False,
    ) -> ArrayView:
        """Submit the many jobs of a specification with ``array``; see ``submit``."""
        async with uploads.packed_async(specs.read(spec)) as ready:
            await self._io.run(operations.upload(self._retry, ready.blobs))
        return await self._io.run(
            operations.submit_array(
                self._retry,
                ready.spec,
                key=idempotency_key or str(uuid.uuid4()),
                project=project,
                force_queue=force_queue,
            )
        )

    async def cancel_array(self, array: str) -> ArrayView:
        """Cancel the jobs of an array that are not over; the answer names them."""
        return await self._io.run(operations.cancel_array(self._retry, array))

    async def job(self, job: str) -> AsyncJob:
        """Return one job by id."""
        return AsyncJob(self._io, self._retry, await self._io.run(operations.get(self._retry, job)))

    async def jobs(
        self,
        *,
        project: str | None = None,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[AsyncJob]:
        """Yield jobs, newest first, over as many pages as there are."""
        ask = _Pages(self._retry, project, tuple(states), labels or {})
        while ask.more:
            for view in ask.take(await self._io.run(ask.next())):
                yield AsyncJob(self._io, self._retry, view)

    async def queue(self, *, project: str | None = None, limit: int = 100) -> QueueView:
        """Return the first waiting jobs; see ``Client.queue``."""
        return await self._io.run(operations.queue(self._retry, project=project, limit=limit))

    async def policy(self) -> str:
        """Return the name of the scheduler's policy; see ``Client.policy``."""
        return await self._io.run(operations.policy())

    async def record(self, *, cycles: int = 1) -> bytes:
        """Return the scheduler's last cycles; see ``Client.record``."""
        return await self._io.run(operations.record(self._retry, cycles=cycles))

    async def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes with their devices."""
        return await self._io.run(operations.nodes(self._retry))

    async def node_token(self, *, node: str = "", expires_in_s: float = 900.0) -> NodeTokenView:
        """Make a one-time token with which a machine becomes a node."""
        return await self._io.run(
            operations.node_token(self._retry, node=node, expires_in_s=expires_in_s)
        )

    async def revoke_node(self, node: str) -> None:
        """Shut a node out: its connections end at once."""
        await self._io.run(operations.revoke_node(self._retry, node))

    @property
    def admin(self) -> AsyncAdmin:
        """Return what only administrators may do."""
        return AsyncAdmin(self._io, self._retry)

    @property
    def integrations(self) -> AsyncIntegrations:
        """Return what lets programs follow events on the bus."""
        return AsyncIntegrations(self._io, self._retry)

    @property
    def secrets(self) -> AsyncSecrets:
        """Return what keeps secrets that jobs may use."""
        return AsyncSecrets(self._io, self._retry)

    async def projects(self) -> tuple[ProjectView, ...]:
        """Return the projects that have quotas or unfinished jobs, by name."""
        return await self._io.run(operations.projects(self._retry))

    async def project(self, name: str) -> ProjectView:
        """Return one project: what was decided for it, and what its jobs use."""
        return await self._io.run(operations.project(self._retry, name))

    async def set_project(self, name: str, settings: ProjectSettings) -> ProjectView:
        """Replace everything that is decided for a project; ``notes`` say what to know about it.

        Raises:
            Forbidden: only an administrator of all projects may.
        """
        return await self._io.run(operations.set_project(self._retry, name, settings))

    async def readiness(self) -> ReadinessView:
        """Return what works on the server, and what does not."""
        return await self._io.run(operations.readiness(self._retry))

    async def version(self) -> VersionView:
        """Return the server's version."""
        return await self._io.run(operations.version(self._retry))

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Pages:
    """Where a listing is: which page comes next, and whether there is one."""

    def __init__(
        self,
        retry: Retry,
        project: str | None,
        states: tuple[JobState | str, ...],
        labels: Mapping[str, str],
    ) -> None:
        self._ask = partial(
            operations.page,
            retry,
            project=project,
            states=states,
            labels=labels,
            page_size=_PAGE_SIZE,
        )
        self._token = ""
        self.more = True

    def next(self) -> Operation[JobList]:
        return self._ask(page_token=self._token)

    def take(self, page: JobList) -> tuple[JobView, ...]:
        self._token = page.next_page_token
        self.more = bool(page.next_page_token)
        return page.jobs


def _headers(token: str) -> dict[str, str]:
    headers = {"User-Agent": f"frenzy/{__version__}"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers
