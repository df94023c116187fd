"""Why a running job is stopped, and whom its devices are for: the words and numbers of a decision.

Pure, and asked only about stops that are carried out, so that a cycle does not pay for texts.
"""

from collections.abc import Mapping, Sequence

from frenzy_scheduler.core.decisions import (
    Decision,
    Place,
    Preempt,
    QueuedJob,
    Resize,
    RunningJob,
    seconds_left,
)
from frenzy_scheduler.core.facts import Displaced
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import PendingReason
from frenzy_shared.domain.placement import Placement, Unplaceable

Job = QueuedJob | RunningJob


def displaced(
    stop: Preempt | Resize, decisions: Sequence[Decision], jobs: Mapping[JobId, Job]
) -> Displaced:
    """Return what to tell about a stop; ``jobs`` are those that the cycle looked at.

    Raises:
        ValueError: the job that is to be stopped does not run.
    """
    job = _running(stop, jobs)
    winners = tuple(
        start
        for start in decisions
        if isinstance(start, Place | Resize)
        and start.job != stop.job
        and not {ref.key for ref in start.placement.devices}.isdisjoint(
            ref.key for ref in job.placement.devices
        )
    )
    why = _resized(job, stop.placement) if isinstance(stop, Resize) else _preempted(job)
    whom = "; ".join(_for(start, jobs[start.job]) for start in winners)
    price = f"a restart costs about {job.progress.restart_s:.0f} s"
    return Displaced(
        why="; ".join(part for part in (why, whom, price) if part),
        data={
            "for": [start.job for start in winners],
            "resized": isinstance(stop, Resize),
            "restart_s": round(job.progress.restart_s, 1),
        },
    )


def moved(move: Resize, jobs: Mapping[JobId, Job]) -> str:
    """Return why a running job goes on elsewhere, and what that costs.

    Raises:
        ValueError: the job does not run.
    """
    job = _running(move, jobs)
    price_s = job.progress.restart_s if job.progress.move_s is None else job.progress.move_s
    return f"{_resized(job, move.placement)}; that costs it about {price_s:.0f} s of training"


def given_back(stops: Sequence[Preempt | Resize], jobs: Mapping[JobId, Job]) -> dict[str, JobId]:
    """Return "<node>/<device>" of what these stops free, and the job that has it now."""
    held: dict[str, JobId] = {}
    for stop in stops:
        job = jobs[stop.job]
        if isinstance(job, RunningJob):
            held |= dict.fromkeys((ref.key for ref in job.placement.devices), job.id)
    return held


def awaited(placement: Placement, held: Mapping[str, JobId]) -> Unplaceable | None:
    """Return why a placement cannot be claimed yet; None when every device of it is free."""
    holders = {ref.key: held[ref.key] for ref in placement.devices if ref.key in held}
    if not holders:
        return None
    who = ", ".join(dict.fromkeys(holders.values()))
    total = len(placement.devices)
    text = (
        f"{len(holders)} of its {total} x {placement.kind} on {', '.join(placement.nodes)} "
        f"are being given back by job {who}, which saves a checkpoint first"
    )
    return Unplaceable(
        reason=PendingReason.WAITING_FOR_PREEMPTED_JOBS.value, message=text, nearest=""
    )


def _running(stop: Preempt | Resize, jobs: Mapping[JobId, Job]) -> RunningJob:
    job = jobs[stop.job]
    if not isinstance(job, RunningJob):
        raise ValueError(f"job {stop.job} does not run")  # noqa: TRY004 - about the decision
    return job


def _resized(job: RunningJob, target: Placement) -> str:
    return (
        f"stopped to go on with {_devices(target)} instead of {_devices(job.placement)}: "
        f"{_left(job, target)} left instead of {_left(job, job.placement)}"
    )


def _preempted(job: RunningJob) -> str:
    return f"preempted with {_left(job, job.placement)} left on {_devices(job.placement)}"


def _for(start: Place | Resize, job: Job) -> str:
    own, taken = _left(job, start.placement), _devices(start.placement)
    return f"for job {start.job}, which has {own} left on {taken}"


def _devices(placement: Placement) -> str:
    return f"{len(placement.devices)} x {placement.kind}"


def _left(job: Job, placement: Placement) -> str:
    plan = next((plan for plan in job.plans if plan.id == placement.plan), None)
    return f"about {seconds_left(job.progress, plan):.0f} s" if plan else "an unknown time"
