"""One change of a job's record, before it is written for the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from frenzy_scheduler.core.facts import TimerKind, timer_id
from frenzy_shared.domain.cluster import owner_token
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.placement import DeviceRef
from frenzy_shared.domain.transitions import transition
from frenzy_shared.state.port import Claim, Release, Timer

_OF_A_LAUNCH = (
    TimerKind.PREPARE,
    TimerKind.GO,
    TimerKind.FIRST_REPORT,
    TimerKind.MAX_DURATION,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Limits in seconds, from settings and from the job's specification.

    ``reports`` says that the job's program reports training steps; a user's own script may not.
    ``evidence_wait_s`` bounds the wait for evidence that must still be on its way. It is far above
    the bus's redelivery time: what a killed replica had in hand comes again only after that.
    """

    prepare_timeout_s: float = 120.0
    warm_timeout_s: float = 300.0
    go_timeout_s: float = 60.0
    first_report_timeout_s: float = 1800.0
    stop_grace_s: float = 30.0
    evidence_wait_s: float = 180.0
    backoff_base_s: float = 10.0
    backoff_max_s: float = 600.0
    replan_timeout_s: float = 30.0
    max_retries: int = 2
    max_oom_retries: int = 3
    max_duration_s: float | None = None
    reports: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """An event beside or along an arrow; ``kind`` is the short type."""

    kind: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The record before and after, with everything that the same call must do.

    ``after`` keeps the version of ``before``: the store adds 1. At most one arrow per step.
    """

    before: JobRecord
    after: JobRecord
    events: tuple[JobEvent, ...] = ()
    claims: tuple[Claim, ...] = ()
    claim_attempt: int | None = None  # of a successor; None: the record's
    releases: tuple[Release, ...] = ()
    set_timers: tuple[Timer, ...] = ()
    clear_timers: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Tell whether the job's state changes."""
        return self.before.state is not self.after.state

    def then(self, other: "Step") -> "Step":
        """Return both steps as one; ``other`` starts where this one ends."""
        return Step(
            before=self.before,
            after=other.after,
            events=(*self.events, *other.events),
            claims=(*self.claims, *other.claims),
            claim_attempt=other.claim_attempt or self.claim_attempt,
            releases=(*self.releases, *other.releases),
            set_timers=(*self.set_timers, *other.set_timers),
            clear_timers=(*self.clear_timers, *other.clear_timers),
        )


def move(
    record: JobRecord,
    after: JobRecord,
    *,
    set_timers: tuple[Timer, ...] = (),
    clear_timers: tuple[str, ...] = (),
    extra: tuple[JobEvent, ...] = (),
) -> Step:
    """Return the step along the arrow between two records, with its event.

    Raises:
        ValueError: there is no such arrow.
    """
    arrow = transition(record.state, after.state)
    data = {"attempt": after.attempt, "reason": after.reason, "message": after.message}
    return Step(
        before=record,
        after=after,
        events=(*extra, JobEvent(kind=arrow.event, data=data)),
        set_timers=set_timers,
        clear_timers=clear_timers,
    )


def stop(record: JobRecord, reason: str, message: str, rules: Rules) -> Step:
    """Return the step to STOPPING; nodes get the grace period and then as long again."""
    return move(
        record,
        replace(record, state=JobState.STOPPING, reason=reason, message=message),
        clear_timers=timers(record, *_OF_A_LAUNCH),
        set_timers=(timer(record, TimerKind.STOP, 2 * rules.stop_grace_s),),
    )


def timer(record: JobRecord, kind: TimerKind, after_s: float) -> Timer:
    """Return a timer of the record's attempt."""
    return Timer(id=timer_id(kind, record.id, record.attempt), after_s=after_s)


def timers(record: JobRecord, *kinds: TimerKind) -> tuple[str, ...]:
    """Return timer ids of the record's attempt."""
    return tuple(timer_id(kind, record.id, record.attempt) for kind in kinds)


def release_node(record: JobRecord, node: str, *, quarantine: bool) -> tuple[Release, ...]:
    """Return what gives up the devices that the attempt holds on one node.

    With ``quarantine`` they cannot be claimed until the node proves that nothing runs.
    """
    token = owner_token(record.id, record.attempt)
    to = quarantine_token(token) if quarantine else ""
    return tuple(
        Release(node=ref.node, device=ref.device, token=token, to=to)
        for ref in devices_on(record, node)
    )


def devices_on(record: JobRecord, node: str) -> tuple[DeviceRef, ...]:
    """Return the placement's devices on one node, in rank order."""
    if record.placement is None:
        return ()
    return tuple(ref for ref in record.placement.devices if ref.node == node)


def quarantine_token(token: str) -> str:
    """Return the owner of a device whose node was lost while ``token`` owned it."""
    return f"!quarantine:lost {token}"
