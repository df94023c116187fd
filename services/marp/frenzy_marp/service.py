"""MARP: plans for submitted jobs, for questions, and again when the cluster has changed."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar

from pydantic import ValidationError

from frenzy_marp.core.correction import corrected
from frenzy_marp.core.learning_runs import is_over
from frenzy_marp.core.planner import plan_job
from frenzy_marp.core.present import Present
from frenzy_marp.core.turns import in_turn
from frenzy_marp.estimates import estimate_view
from frenzy_marp.learning import Learner, framework_of
from frenzy_marp.memo import Memo
from frenzy_marp.metrics import Metrics
from frenzy_marp.settings import MarpSettings
from frenzy_shared import crashpoints
from frenzy_shared.bus.port import Bus, Message, Poison
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord, JobState, StopReason
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.domain.transitions import transition
from frenzy_shared.errors import FrenzyError, InvalidSpec, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import from_json, to_json
from frenzy_shared.messages.envelope import CloudEvent, short_kind
from frenzy_shared.messages.estimate import DriftList, DriftView, EstimateReply, EstimateRequest
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.runtime import every, run_until_stopped
from frenzy_shared.state.port import Change, OutboxMessage, StateStore, Status
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_QUEUE: Final = "marp"
_SUBMITTED: Final = frozenset({JobState.SUBMITTED})
_QUEUED: Final = frozenset({JobState.QUEUED})
# What plans that were found fresh depend on: the job's version, the kinds' digest, when memory last
# ran out; and an era, because another replica that knew less may have written them since.
_Stamp = tuple[int, str, int, int]
_Reply = TypeVar("_Reply", PlanReply, EstimateReply)
_CATCH_UP_SHARE: Final = 0.6  # of the time, next to events
_CATCH_UP_S: Final = 1.0  # of planning in one go; events go on meanwhile
_REPORT_S: Final = 5.0
_KNOWN_S: Final = 0.25  # for how long a look at the cluster is believed
_TRUSTED_S: Final = 300.0  # plans that were found fresh
_REFRESH_SHARE: Final = 0.2  # of the time, however many jobs wait
_TO_PLAN: Final = frozenset({"submitted", "replanned"})


@dataclass(kw_only=True)
class Marp:
    """One replica, made of its ports. Replicas share the durable and the queue group."""

    state: StateStore
    bus: Bus
    clock: Clock
    settings: MarpSettings
    telemetry: Telemetry
    _metrics: Metrics = field(init=False)
    _learner: Learner = field(init=False)
    _memo: Memo = field(init=False, default_factory=Memo)
    _known: Present | None = field(init=False, default=None)
    _known_at: float = field(init=False, default=0.0)
    _seen: dict[JobId, int] = field(init=False, default_factory=dict)  # to plan, at the last look
    _fresh: dict[JobId, _Stamp] = field(init=False, default_factory=dict)  # plans, when last read

    def __post_init__(self) -> None:
        """Register metrics; nothing runs yet."""
        self._metrics = Metrics(self.telemetry.registry)
        self._learner = Learner(state=self.state, metrics=self._metrics)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Serve until ``stop`` or a signal."""
        async with AsyncExitStack() as stack:
            events = await self.bus.consume(
                subjects.EVENTS_STREAM,
                subjects.MARP_DURABLE,
                self.on_event,
                filter_subject=subjects.JOB_EVENTS,
            )
            stack.push_async_callback(events.stop)
            questions = await self.bus.serve(subjects.MARP_PLAN, self.on_question, queue=_QUEUE)
            stack.push_async_callback(questions.stop)
            exact = await self.bus.serve(subjects.MARP_ESTIMATE, self.on_estimate, queue=_QUEUE)
            stack.push_async_callback(exact.stop)
            drifts = await self.bus.serve(subjects.MARP_DRIFTS, self.on_drifts, queue=_QUEUE)
            stack.push_async_callback(drifts.stop)
            await run_until_stopped(
                lambda s: every(self.settings.catch_up_s, s, self.catch_up, share=_CATCH_UP_SHARE),
                lambda s: every(self.settings.refresh_s, s, self.refresh, share=_REFRESH_SHARE),
                lambda s: every(_REPORT_S, s, self._report),
                stop=stop,
            )

    async def on_event(self, message: Message) -> None:
        """Plan the job that an event says needs it; learn from an attempt that is over.

        Raises:
            Poison: the message is not an event of a job.
            Unavailable: the store is down; the event comes again.
        """
        try:
            event = CloudEvent.decode(message.payload)
            kind = short_kind(event.type)
            seen = from_json(JobRecord, event.data["record"])
        except (ValidationError, IndexError, KeyError) as error:
            raise Poison(f"not an event of a job: {error!r}") from None
        if is_over(seen):
            await self._learn(seen)
        if kind not in _TO_PLAN:
            return
        job = JobId(event.subject.removeprefix("job:"))
        with self.telemetry.span("marp.plan", parent=event.traceparent, job=job):
            record = await self.state.job(job)
            if record is not None and record.state is JobState.SUBMITTED:
                await self._plan_submitted(record, await self._present())

    async def on_question(self, message: Message) -> bytes:
        """Answer a dry run. Whatever is wrong becomes part of the answer."""

        async def plans() -> PlanReply:
            request = PlanRequest.decode(message.payload)
            return PlanReply(plans=self._plans(request.spec, await self._present()))

        return await self._answered(message, plans, PlanReply)

    async def on_estimate(self, message: Message) -> bytes:
        """Say what one exact configuration takes. Whatever is wrong becomes part of the answer."""

        async def estimate() -> EstimateReply:
            request = EstimateRequest.decode(message.payload)
            kinds = (await self._present()).kinds
            view = estimate_view(request, kinds, self._learner.experience)
            return EstimateReply(estimate=view)

        return await self._answered(message, estimate, EstimateReply)

    async def on_drifts(self, _: Message) -> bytes:
        """Say where predictions have lately left their bands."""
        drifts = self._learner.experience.drifts()
        return DriftList(drifts=tuple(DriftView(**asdict(drift)) for drift in drifts)).encode()

    async def catch_up(self) -> None:
        """Plan jobs whose events are late or were lost, in turn by project.

        Events come in the order of arrival: behind one project's thousands, another's job would
        wait for all of them. Reading takes a fifth of the time at most, however many wait.
        """
        started = self.clock.monotonic()
        waiting = await self.state.jobs_in(_SUBMITTED)
        late = [record for record in waiting if self._seen.get(record.id) == record.version]
        self._seen = {record.id: record.version for record in waiting}
        if not late:
            return
        present, read = await self._present(), self.clock.monotonic()
        until = read + max(_CATCH_UP_S, 4 * (read - started))
        for seen in in_turn(late, random.Random()):  # noqa: S311 - no secret
            if self.clock.monotonic() > until:
                return
            record = await self.state.job(seen.id)  # an event may have been faster
            if record is not None and record.state is JobState.SUBMITTED:
                await self._carefully(record, self._plan_submitted(record, present))

    async def refresh(self) -> None:
        """Read what was learned; plan jobs again whose plans the cluster or that made stale."""
        await self._learner.refresh()
        present = await self._look()
        era = int(self.clock.monotonic() / _TRUSTED_S)
        fresh: dict[JobId, _Stamp] = {}
        for record in await self.state.jobs_in(_QUEUED):
            learned_ms = self._learner.experience.learned_ms
            stamp = (record.version, present.digest, learned_ms, era)
            if self._fresh.get(record.id) == stamp or await self._carefully(
                record, self._renew(record, present)
            ):
                fresh[record.id] = stamp
        self._fresh = fresh

    async def _report(self) -> None:
        state = await self.bus.durable_state(subjects.EVENTS_STREAM, subjects.MARP_DURABLE)
        if state is not None:
            self._metrics.lagged(subjects.MARP_DURABLE, state.pending + state.unacknowledged)

    async def _carefully(self, record: JobRecord, planning: Awaitable[None]) -> bool:
        """Plan one job; one that cannot be planned must not stop all others."""
        try:
            await planning
        except Unavailable:
            raise
        except Exception:
            log.exception("job %s could not be planned", record.id, extra={"job": record.id})
            return False
        return True

    async def _answered(
        self,
        message: Message,
        answer: Callable[[], Awaitable[_Reply]],
        kind: type[_Reply],
    ) -> bytes:
        parent = message.headers.get("traceparent", "")
        with self.telemetry.span("marp.question", parent=parent):
            try:
                return (await answer()).encode()
            except ValidationError as error:
                text = f"not a question that MARP knows: {error}"
                return kind(error_code=InvalidSpec.code, error=text).encode()
            except FrenzyError as error:
                return kind(
                    error_code=error.code, error=error.message, suggestions=error.suggestions
                ).encode()
            except Exception:  # silence would look like an outage to whoever asked
                log.exception("a question could not be answered")
                text = "planning failed; MARP's log says why"
                return kind(error_code=FrenzyError.code, error=text).encode()

    async def _learn(self, record: JobRecord) -> None:
        """Note how an attempt went. What cannot be learned from must not hold up events."""
        try:
            plans = await self.state.plans(record.id)
            await self._learner.note(record, plans, (await self._present()).kinds)
        except Unavailable:
            raise
        except (FrenzyError, ValidationError) as error:
            log.warning("nothing is learned from job %s: %s", record.id, error)

    async def _renew(self, record: JobRecord, present: Present) -> None:
        plans = await self.state.plans(record.id)
        if (
            plans is None
            or plans.kinds_digest != present.digest
            or self._learner.experience.outdates(plans)
        ):
            await self._plan_again(record, plans, present)

    async def _plan_submitted(self, record: JobRecord, present: Present) -> None:
        if is_over(record):  # before its plans are replaced, in case its event comes later
            await self._learn(record)
        try:
            plans = await self._plans_of(record, await self.state.plans(record.id), present)
        except FrenzyError as error:
            if isinstance(error, Unavailable):
                raise
            await self._fail(record, error.message)
            return
        if plans.feasible or record.force_queue or not present.kinds:
            await self._queue(record, plans)
        else:
            await self._fail(record, plans.message, plans)

    async def _plan_again(self, record: JobRecord, plans: PlanSet | None, present: Present) -> None:
        """Replace the plans of a waiting job; its state stays, so the version does too."""
        fresh = await self._plans_of(record, plans, present)
        change = Change(
            entity=f"job:{record.id}",
            expect_version=record.version,
            allowed_from=frozenset({JobState.QUEUED}),
            documents={"plans": to_json(fresh)},
        )
        made_for = f"{fresh.kinds_digest}:{fresh.learned_ms}"
        operation = f"marp:{record.id}:{record.version}:{made_for}"
        result = await self.state.apply(operation, change)
        log.info("plans of waiting job %s renewed: %s", record.id, result.status)

    async def _plans_of(
        self, record: JobRecord, earlier: PlanSet | None, present: Present
    ) -> PlanSet:
        spec = await self.state.spec(record.id)
        if spec is None:
            raise InvalidSpec(f"job {record.id} has no specification")
        demanded = corrected(record, earlier, present.kinds)
        return self._plans(JobSpec.model_validate(spec), present, demanded)

    def _plans(self, spec: JobSpec, present: Present, demanded: float = 0.0) -> PlanSet:
        started = self.clock.monotonic()
        outcome = "error"
        try:
            setup, kinds = training_setup(spec), present.within(spec.resources.node_pins)
            framework, experience = framework_of(spec), self._learner.experience
            plans = self._memo.plans(
                (setup, kinds, demanded, framework),
                experience,
                lambda: plan_job(
                    setup, kinds, demanded=demanded, experience=experience, framework=framework
                ),
            )
            outcome = "feasible" if plans.feasible else "infeasible"
        except FrenzyError as error:
            outcome = error.code
            raise
        else:
            return present.told(plans, spec.resources.node_pins)
        finally:
            self._metrics.planned(self.clock.monotonic() - started, outcome)

    async def _present(self) -> Present:
        """Return the cluster as it was a moment ago at most.

        Reading a big one takes longer than planning, and every job asks twice.
        """
        if self._known is None or self.clock.monotonic() - self._known_at > _KNOWN_S:
            return await self._look()
        return self._known

    async def _look(self) -> Present:
        """Return the cluster as it is."""
        asked = self.clock.monotonic()
        self._known = Present.of((await self.state.cluster()).nodes)
        self._known_at = asked
        return self._known

    async def _queue(self, record: JobRecord, plans: PlanSet) -> None:
        await self._move(record, JobState.QUEUED, plans, reason="", message=plans.message)

    async def _fail(self, record: JobRecord, message: str, plans: PlanSet | None = None) -> None:
        reason = StopReason.NO_FEASIBLE_PLAN.value
        await self._move(record, JobState.FAILED, plans, reason=reason, message=message)

    async def _move(
        self, record: JobRecord, to: JobState, plans: PlanSet | None, *, reason: str, message: str
    ) -> None:
        """Make one transition; whoever was faster (a cancel, a replica) is left to be right."""
        event = transition(record.state, to).event
        patch: dict[str, str | int] = {
            "state": to.value,
            "reason": reason,
            "message": message,
        }
        if to is JobState.FAILED:
            patch["finished_ms"] = self.clock.now_ms()
        change = Change(
            entity=f"job:{record.id}",
            expect_version=record.version,
            allowed_from=frozenset({JobState.SUBMITTED}),
            patch=patch,
            documents={} if plans is None else {"plans": to_json(plans)},
            outbox=[
                OutboxMessage(
                    subject=subjects.job_event(record.project, event, record.id),
                    type=event,
                    data={"reason": reason, "message": message},
                )
            ],
        )
        crashpoints.reach("marp.after-planning")
        result = await self.state.apply(f"marp:{record.id}:{record.version}", change)
        crashpoints.reach("marp.after-change")
        if result.status not in (Status.OK, Status.STALE, Status.BAD_STATE):
            log.warning("job %s could not become %s: %s", record.id, to, result)
