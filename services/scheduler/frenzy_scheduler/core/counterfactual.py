"""What would start a waiting job: small edits of the question, each tried with ``cycle``.

Nothing is claimed that the scheduler would not do: an edit counts only if the cycle then places
the job. Work is bounded: a fixed number of edits, searches by halves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, islice
from typing import Final

from frenzy_scheduler.core.admission import Holding
from frenzy_scheduler.core.decisions import Place, QueuedJob, RunningJob, holds_for_s
from frenzy_scheduler.core.question import Question
from frenzy_scheduler.core.wording import devices_of, plan_title, without_pin
from frenzy_shared.domain.cluster import NodeRecord, NodeState
from frenzy_shared.domain.ids import JobId, PlanId
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.units import format_duration

_MOST: Final = 6  # of the answers
_MOST_NODES: Final = 8  # of those that are away, each tried alone
_MOST_SPARED: Final = 8  # ends that are tried whether they are needed
_MOST_NAMED: Final = 2  # jobs in one sentence
_HIGHEST_PRIORITY: Final = 100
_AWAY: Final = frozenset({NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING})


class What(StrEnum):
    """What would have to be otherwise."""

    PIN = "pin"
    TIME = "time"
    LINE = "line"
    PRIORITY = "priority"
    QUOTA = "quota"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """A pin of the job, and the plans that it would have without it."""

    pin: str  # "resources.gpus"
    value: str  # "4"
    plans: tuple[ResourcePlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One change after which the cycle starts the job, with which plan.

    ``after_s`` is predicted seconds from now, 0 for what could be otherwise now. ``question`` is
    the edited one, whose answer places the job.
    """

    what: What
    text: str
    plan: PlanId
    after_s: float = 0.0
    question: Question = field(compare=False, repr=False)


def counterfactuals(
    question: Question, job: JobId, relaxed: Sequence[Relaxed] = ()
) -> list[Counterfactual]:
    """Return what would start a job of the queue that the cycle leaves waiting.

    Nothing for a job that waits for another job or for somebody's word: no device helps it.
    """
    waiting = next((one for one in question.queue if one.id == job), None)
    if waiting is None or waiting.blocked is not None:
        return []
    due = replace(waiting, not_before_ms=min(waiting.not_before_ms, question.now_ms))
    asked = _with(question, due)
    ways = (_pins(asked, due, relaxed), _times(asked, due), _line(asked, due))
    more = (_priorities(asked, due), _quota(asked, due), _nodes(asked, due))
    return list(islice(chain(*ways, *more), _MOST))


def _pins(
    question: Question, job: QueuedJob, relaxed: Sequence[Relaxed]
) -> Iterator[Counterfactual]:
    for free in relaxed:
        edited = _with(question, replace(job, plans=free.plans))
        if (place := edited.placement_of(job.id)) is not None:
            plan = next(plan for plan in free.plans if plan.id == place.placement.plan)
            text = f"would start now {without_pin(free.pin, free.value, plan)}: {plan_title(plan)}"
            yield _found(What.PIN, text, place, edited)
    if job.nodes is not None:
        edited = _with(question, replace(job, nodes=None))
        if (place := edited.placement_of(job.id)) is not None:
            where = ", ".join(place.placement.nodes)
            yield _found(What.PIN, f"would start now if it might use {where}", place, edited)


def _times(question: Question, job: QueuedJob) -> Iterator[Counterfactual]:
    """Find few running jobs, those that are predicted to end first, whose devices would do."""
    over = _in_time(question, job)
    alone = not over
    if alone:  # those ahead in the queue would take what they give back
        question = replace(question, queue=[job])
        over = _in_time(question, job)
    edited = _over(question, [running for _, running in over])
    if over and (place := edited.placement_of(job.id)) is not None:
        after_s = over[-1][0]
        free = f"{len(place.placement.devices)} x {place.placement.kind} free"
        ends = _predicted_ends([running.id for _, running in over])
        ahead = ", if no job ahead of it waited then" if alone else ""
        text = f"would start with {free} in ~{format_duration(after_s)} ({ends}){ahead}"
        yield _found(What.TIME, text, place, edited, after_s)


def _in_time(question: Question, job: QueuedJob) -> list[tuple[float, RunningJob]]:
    """Return jobs after whose ends the cycle starts a job, with the seconds; empty: none do."""
    kinds = {plan.kind for plan in job.plans}
    known = [(one, one.plan) for one in question.running if one.placement.kind in kinds]
    ends = [(holds_for_s(one, plan, question.now_ms), one) for one, plan in known if plan]
    ends.sort(key=lambda end: (end[0], end[1].id))

    def works(some: Sequence[tuple[float, RunningJob]]) -> bool:
        return _over(question, [one for _, one in some]).placement_of(job.id) is not None

    count = _least(1, len(ends), lambda count: works(ends[:count]))
    over = ends[:count] if count is not None else []
    for end in over[:-1][:_MOST_SPARED]:  # others may have freed what nobody needed
        rest = [one for one in over if one is not end]
        over = rest if works(rest) else over
    return over


def _line(question: Question, job: QueuedJob) -> Iterator[Counterfactual]:
    edited = replace(question, queue=[job])
    if len(question.queue) > 1 and (place := edited.placement_of(job.id)) is not None:
        devices = f"{len(place.placement.devices)} x {place.placement.kind}"
        text = f"would start now if no other job waited: {devices} are idle"
        yield _found(What.LINE, text, place, edited)


def _priorities(question: Question, job: QueuedJob) -> Iterator[Counterfactual]:
    def raised(priority: int) -> Question:
        return _with(question, replace(job, priority=priority))

    least = _least(
        job.priority + 1,
        _HIGHEST_PRIORITY,
        lambda priority: raised(priority).placement_of(job.id) is not None,
    )
    if least is not None and (place := raised(least).placement_of(job.id)) is not None:
        text = f"would start now with priority {least} (it has {job.priority})"
        yield _found(What.PRIORITY, text, place, raised(least))


def _quota(question: Question, job: QueuedJob) -> Iterator[Counterfactual]:
    others = tuple(one for one in question.projects if one.name != job.project)
    if len(others) < len(question.projects):
        edited = replace(question, projects=others)
        if (place := edited.placement_of(job.id)) is not None:
            text = f"would start now without the quota of project {job.project}"
            yield _found(What.QUOTA, text, place, edited)


def _nodes(question: Question, job: QueuedJob) -> Iterator[Counterfactual]:
    away = [node for node in question.cluster.nodes if node.state in _AWAY]
    for node in away[:_MOST_NODES]:
        edited = _back(question, node)
        if (place := edited.placement_of(job.id)) is not None:
            text = f"would start now if node {node.id} ({node.state}, {devices_of(node)}) were UP"
            yield _found(What.NODE, text, place, edited)


def _predicted_ends(jobs: Sequence[JobId]) -> str:
    named, more = jobs[:_MOST_NAMED], len(jobs) - _MOST_NAMED
    if len(jobs) == 1:
        return f"job {jobs[0]} is predicted to end"
    rest = f" and {more} more" if more > 0 else ""
    return f"jobs {', '.join(named)}{rest} are predicted to end"


def _found(
    what: What, text: str, place: Place, question: Question, after_s: float = 0.0
) -> Counterfactual:
    return Counterfactual(
        what=what, text=text, plan=place.placement.plan, after_s=after_s, question=question
    )


def _with(question: Question, job: QueuedJob) -> Question:
    queue = [job if one.id == job.id else one for one in question.queue]
    return replace(question, queue=queue)


def _over(question: Question, jobs: Sequence[RunningJob]) -> Question:
    """Return the question as it will be when these jobs have ended."""
    over = {job.id for job in jobs}
    holdings = list(question.holdings)
    for job in jobs:
        holding = Holding(job.project, job.placement.kind, len(job.placement.devices))
        if holding in holdings:  # any that is alike: they have no names
            holdings.remove(holding)
    freed = dict.fromkeys((ref.key for job in jobs for ref in job.placement.devices), "")
    return replace(
        question,
        running=[job for job in question.running if job.id not in over],
        cluster=replace(question.cluster, owners={**question.cluster.owners, **freed}),
        holdings=tuple(holdings),
    )


def _back(question: Question, node: NodeRecord) -> Question:
    up = replace(node, state=NodeState.UP)
    nodes = tuple(up if one.id == node.id else one for one in question.cluster.nodes)
    return replace(question, cluster=replace(question.cluster, nodes=nodes))


def _least(low: int, high: int, works: Callable[[int], bool]) -> int | None:
    """Return the least number that works, if more never works worse; None when ``high`` fails."""
    if low > high or not works(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if works(middle):
            high = middle
        else:
            low = middle + 1
    return high
