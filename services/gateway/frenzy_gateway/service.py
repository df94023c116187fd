"""What the gateway does for its callers, over the ports it was given."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from frenzy_gateway import submission, views
from frenzy_gateway.callers import Caller, Callers
from frenzy_gateway.cancellation import cancel_change, settled
from frenzy_gateway.deadletters import DeadLetters
from frenzy_gateway.dependencies import find_dependencies
from frenzy_gateway.enrolment import Enrolment
from frenzy_gateway.holding import hold_change, release_change
from frenzy_gateway.integrations import Integrations
from frenzy_gateway.operations import Operations
from frenzy_gateway.projects import Projects
from frenzy_gateway.questions import Questions
from frenzy_gateway.readiness import Readiness
from frenzy_gateway.reading import Reader
from frenzy_gateway.sealed import Seal
from frenzy_gateway.secrets import Secrets
from frenzy_gateway.settings import GatewaySettings
from frenzy_gateway.tokens import Tokens
from frenzy_shared import crashpoints
from frenzy_shared.auth import ALL_PROJECTS, parse_token
from frenzy_shared.blobs.port import BlobStore
from frenzy_shared.bus.nats_users import UsersFile
from frenzy_shared.bus.port import Bus
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.ids import JobId, ProjectName, is_name
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.errors import (
    BlobMissing,
    FieldProblem,
    FrenzyError,
    NotFound,
    QuotaExceeded,
    Unavailable,
)
from frenzy_shared.messages import http
from frenzy_shared.messages.estimate import EstimateRequest, EstimateView, overridden
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.state.port import Change, Json, Result, StateStore, Status, Submission
from frenzy_shared.telemetry import traceparent

log = logging.getLogger(__name__)

_CHANGE_TRIES = 20  # each lost to another writer of the same job


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer to a submission. ``created`` is False when the same request came before."""

    job: http.JobView
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayService:
    """The gateway's use cases. ``stopping`` is set when the process is about to end.

    ``seal`` holds the keys of secrets; None: this gateway keeps none.
    """

    state: StateStore
    bus: Bus
    blobs: BlobStore
    clock: Clock
    ids: IdSource
    settings: GatewaySettings
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    seal: Seal | None = None
    noted_tokens: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def reader(self) -> Reader:
        """Return what reads logs and events."""
        return Reader(
            state=self.state,
            bus=self.bus,
            stopping=self.stopping,
            max_log_bytes=self.settings.max_log_bytes,
        )

    @property
    def callers(self) -> Callers:
        """Return what knows the callers."""
        return Callers(state=self.state, clock=self.clock, noted=self.noted_tokens)

    @property
    def tokens(self) -> Tokens:
        """Return what makes, lists and revokes tokens."""
        own = self.settings.admin_token
        token = None if own is None else parse_token(own.get_secret_value())
        own_id = "" if token is None else token.id
        return Tokens(state=self.state, clock=self.clock, own_id=own_id)

    @property
    def dead_letters(self) -> DeadLetters:
        """Return what handles messages that a service gave up."""
        return DeadLetters(bus=self.bus, ids=self.ids)

    @property
    def operations(self) -> Operations:
        """Return what operators do."""
        return Operations(
            state=self.state, clock=self.clock, ids=self.ids, questions=self.questions
        )

    @property
    def enrolment(self) -> Enrolment:
        """Return what makes machines nodes."""
        users = self.settings.bus_users
        return Enrolment(
            state=self.state,
            clock=self.clock,
            users=None if users is None else UsersFile(users),
            nats_url=self.settings.bus_public_url,
            authority=self.settings.authority,
        )

    @property
    def integrations(self) -> Integrations:
        """Return what lets programs follow events."""
        enrolment = self.enrolment
        return Integrations(
            bus=self.bus,
            clock=self.clock,
            users=enrolment.users,
            nats_url=enrolment.nats_url,
            authority_pem=lambda: enrolment.authority_pem() if enrolment.authority else "",
        )

    @property
    def projects(self) -> Projects:
        """Return what shows and sets quotas."""
        return Projects(state=self.state)

    @property
    def secrets(self) -> Secrets:
        """Return what keeps secrets."""
        return Secrets(state=self.state, clock=self.clock, seal=self.seal)

    @property
    def questions(self) -> Questions:
        """Return what asks other services."""
        return Questions(
            bus=self.bus,
            marp_timeout_s=self.settings.marp_timeout_s,
            explain_timeout_s=self.settings.explain_timeout_s,
        )

    @property
    def readiness(self) -> Readiness:
        """Return what watches store and bus."""
        return Readiness(
            state=self.state,
            bus=self.bus,
            max_outbox_lag=self.settings.max_outbox_lag,
            max_memory_ratio=self.settings.max_memory_ratio,
        )

    # -- jobs ---------------------------------------------------------------------------------

    async def submit(
        self, caller: Caller, spec: JobSpec, project: str, key: str | None, *, force_queue: bool
    ) -> Accepted:
        """Accept a job once, whatever happens to the answer on its way."""
        name = self.writable(caller, project)
        if key is not None:
            job = submission.job_id_of(name, submission.check_key(key))
            earlier = await self.state.job(job)
            if earlier is not None:
                submission.require_same(earlier, submission.spec_digest(spec))
                return Accepted(job=await self.view(earlier), created=False)
        else:
            job = JobId(self.ids.new_id())
        submission.refuse_array(spec)
        prepared = submission.new_submission(
            spec,
            job=job,
            project=name,
            key=key if key is not None else job,
            submitted_by=caller.name,
            force_queue=force_queue,
            traceparent=traceparent(),
            waits_for=await find_dependencies(self.state, name, spec, job),
        )
        await self.readiness.require_room()
        await self.secrets.require(name, spec)
        await self.validate(spec, force_queue=force_queue)
        return await self.accept(prepared)

    async def accept(self, prepared: Submission) -> Accepted:
        """Store a job that was checked."""
        job, name = prepared.job.id, prepared.job.project
        # The op id is this request's own: the store's memo must answer a replayed call, and not
        # hide from a second request that its body differs.
        crashpoints.reach("gateway.before-submit")
        result = await self.state.submit(f"submit:{name}:{job}:{self.ids.new_id()}", prepared)
        crashpoints.reach("gateway.after-submit")
        if result.status is Status.OK:
            log.info("%s submitted job %s", prepared.job.submitted_by, job)
            return Accepted(job=await self._new_view(prepared.job), created=True)
        earlier = await self.state.job(JobId(result.id)) if result.status is Status.EXISTS else None
        if earlier is not None:
            return Accepted(job=await self.view(earlier), created=False)
        raise _not_accepted(result, name)

    async def preview(
        self, caller: Caller, spec: JobSpec, project: str, *, force_queue: bool
    ) -> http.JobView:
        """Check a submission and show the job it would make; nothing is stored."""
        name = self.writable(caller, project)
        submission.refuse_array(spec)
        prepared = submission.new_submission(
            spec,
            job=JobId(""),
            project=name,
            key="",
            submitted_by=caller.name,
            force_queue=force_queue,
            traceparent="",
            waits_for=await find_dependencies(self.state, name, spec, JobId("")),
        )
        await self.secrets.require(name, spec)
        await self.validate(spec, force_queue=force_queue)
        now = self.clock.now_ms()
        return views.job_view(replace(prepared.job, created_ms=now, updated_ms=now), None, None)

    async def validate(self, spec: JobSpec, *, force_queue: bool) -> None:
        """Check what can be checked before a job is stored; MARP's silence is no objection."""
        training_setup(spec)  # raises for a model or length that no cluster could train
        for pointer, digest in submission.blob_references(spec):
            if not await self.blobs.exists(digest):
                raise BlobMissing(
                    f"{pointer.lstrip('/')}: no blob {digest} is stored",
                    problems=(FieldProblem(pointer=pointer, detail=f"no blob {digest} is stored"),),
                    suggestions=(f"upload it first: PUT /api/v1/blobs/{digest}",),
                )
        reply = await self.questions.plans(spec)
        if reply is None:
            return
        objection = submission.objection(reply, force_queue=force_queue)
        if objection is not None:
            raise objection

    async def cancel(self, caller: Caller, job: str) -> http.JobView:
        """Stop a job; once it is stopping or cancelled this changes nothing."""

        def change(record: JobRecord) -> Change | None:
            if settled(record):
                return None
            return cancel_change(record, caller.name, self.clock.now_ms())

        view = await self._change(caller, job, "cancel", change)
        crashpoints.reach("gateway.after-cancel")
        return view

    async def hold(self, caller: Caller, job: str) -> http.JobView:
        """Keep a waiting job from starting until it is released."""
        return await self._change(
            caller, job, "hold", lambda record: hold_change(record, caller.name)
        )

    async def release(self, caller: Caller, job: str) -> http.JobView:
        """Let a job that was held back start again."""
        return await self._change(
            caller, job, "release", lambda record: release_change(record, caller.name)
        )

    async def record(self, caller: Caller, job: str) -> JobRecord:
        """Return a job's record; ``NotFound`` when there is none that the caller may see."""
        record = await self.state.job(JobId(job)) if is_name(job) else None
        if record is None or not caller.sees(record.project):
            raise NotFound(f"no job {job[:80]!r}", suggestions=("list jobs: GET /api/v1/jobs",))
        return record

    async def view(self, record: JobRecord) -> http.JobView:
        """Show a job with its plan and why it waits."""
        plans, pending = await asyncio.gather(
            self.state.plans(record.id), self.state.pending(record.id)
        )
        return views.job_view(record, plans, pending)

    async def list_jobs(
        self,
        caller: Caller,
        *,
        project: str | None,
        states: frozenset[JobState],
        labels: Mapping[str, str],
        page_size: int,
        page_token: str,
    ) -> http.JobList:
        """Show a page of jobs, newest first, without their plans."""
        page, health = await asyncio.gather(
            self.state.list_jobs(
                project=self._readable(caller, project),
                states=states,
                page_size=page_size,
                page_token=page_token,
                labels=labels,
            ),
            self.state.health(),
        )
        pending = await asyncio.gather(*(self._pending(record) for record in page.jobs))
        jobs = (
            views.job_view(record, None, why)
            for record, why in zip(page.jobs, pending, strict=True)
        )
        return http.JobList(
            jobs=tuple(jobs), next_page_token=page.next_token, safe_mode=health.safe_mode
        )

    async def explain(self, caller: Caller, job: str) -> http.ExplainView:
        """Say why a job is where it is: the scheduler's answer, else the last known reason."""
        record = await self.record(caller, job)
        reply = await self.questions.explanation(record.id)
        if reply is not None:
            return http.ExplainView(
                job=record.id,
                state=JobState(reply.state) if reply.state else record.state,
                reason=reply.reason,
                message=reply.message,
                nearest=reply.nearest,
                position=reply.position,
                source="scheduler",
                would_start=reply.would_start,
                eta=reply.eta,
                basis=reply.basis,
            )
        view = await self.view(record)
        why = view.pending or http.PendingView(reason=record.reason, message=record.message)
        return http.ExplainView(
            job=record.id,
            state=record.state,
            source="store",
            **why.model_dump(),
        )

    async def queue(self, caller: Caller, project: str | None, limit: int) -> http.QueueView:
        """Show the first waiting jobs that the caller may see, and until when they wait."""
        reply, health = await asyncio.gather(
            self.questions.queue(self._readable(caller, project), limit), self.state.health()
        )
        return http.QueueView(
            policy=reply.policy,
            total=reply.total,
            entries=reply.entries,
            basis=reply.basis,
            safe_mode=health.safe_mode,
        )

    # -- cluster ------------------------------------------------------------------------------

    async def plan(self, spec: JobSpec) -> http.PlanResult:
        """Ask MARP how a job could run; nothing is stored."""
        training_setup(spec)
        reply = await self.questions.plans(spec)
        if reply is None:
            raise Unavailable("MARP does not answer", suggestions=("is frenzy_marp running?",))
        if reply.plans is None:
            raise submission.planning_error(reply)
        return http.PlanResult(plans=reply.plans)

    async def estimate(self, request: EstimateRequest) -> EstimateView:
        """Ask MARP what one exact configuration takes; nothing is stored."""
        training_setup(overridden(request.spec, request.overrides))  # says at once what is wrong
        reply = await self.questions.estimate(request)
        if reply is None:
            raise Unavailable("MARP does not answer", suggestions=("is frenzy_marp running?",))
        if reply.estimate is None:
            raise submission.planning_error(reply)
        return reply.estimate

    async def nodes(self) -> http.NodeList:
        """Show all nodes."""
        cluster, health = await asyncio.gather(self.state.cluster(), self.state.health())
        return views.nodes_view(cluster, health.safe_mode)

    # -- inside -------------------------------------------------------------------------------

    async def _change(
        self,
        caller: Caller,
        job: str,
        verb: str,
        change_of: Callable[[JobRecord], Change | None],
    ) -> http.JobView:
        """Change a job as it is now; again when somebody else was faster. None: nothing to do."""
        operation = f"{verb}:{job}:{self.ids.new_id()}"
        for number in range(_CHANGE_TRIES):
            record = await self.record(caller, job)
            change = change_of(record)
            if change is None:
                return await self.view(record)
            result = await self.state.apply(f"{operation}:{number}", change)
            if result.ok:
                log.info("%s: %s job %s", caller.name, verb, job)
                return await self.view(await self.record(caller, job))
            if result.status not in (Status.STALE, Status.BAD_STATE):
                raise NotFound(f"no job {job}", suggestions=("list jobs: GET /api/v1/jobs",))
        raise Unavailable(f"job {job} changes too quickly; try again")

    def writable(self, caller: Caller, project: str) -> ProjectName:
        """Return a project's name; ``Forbidden`` unless the caller's scope covers it."""
        name = submission.check_project(project)
        caller.require(name)
        return name

    def _readable(self, caller: Caller, project: str | None) -> ProjectName | None:
        if project is None:
            return None if caller.project == ALL_PROJECTS else ProjectName(caller.project)
        return self.writable(caller, project)

    async def _new_view(self, prepared: JobRecord) -> http.JobView:
        """Show a job that was accepted just now; a store that fails now cannot undo that."""
        try:
            record = await self.state.job(prepared.id)
        except Unavailable:
            record = None
        now = self.clock.now_ms()
        shown = record or replace(prepared, created_ms=now, updated_ms=now)
        return views.job_view(shown, None, None)

    async def _pending(self, record: JobRecord) -> Json | None:
        waiting = record.state in (JobState.SUBMITTED, JobState.QUEUED)
        return await self.state.pending(record.id) if waiting else None


def _not_accepted(result: Result, project: ProjectName) -> FrenzyError:
    if result.status is Status.CONFLICT:
        return submission.conflict(result.id)
    if result.status is Status.QUOTA:
        return QuotaExceeded(
            f"project {project!r} has reached its quota: {result.detail}",
            suggestions=("wait for jobs to finish, or cancel some",),
        )
    return FrenzyError(f"the store refused the submission: {result.status} {result.detail}")
