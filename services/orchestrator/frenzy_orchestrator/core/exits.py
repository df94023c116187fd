"""Turn how processes ended into why: one reason per rank, and the root cause among them.

A rank's own report wins over its exit code, and signals count only when Frenzy did not send
them: a rank that we ended is never a failure of its own.
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from frenzy_shared.domain.job import RankOutcome, StopReason


class EndedBy(StrEnum):
    """What made the ranks of an attempt end on this node."""

    COMPLETED = "completed"
    RANK_FAILED = "rank_failed"
    STOPPED = "stopped"
    FENCED = "fenced"
    LAUNCH_FAILED = "launch_failed"
    DEVICE_BUSY = "device_busy"
    SHIM_LOST = "shim_lost"
    REBOOTED = "rebooted"


# Where no rank ran, there is nothing to report but a refusal.
NEVER_RAN: Final = frozenset({EndedBy.LAUNCH_FAILED, EndedBy.DEVICE_BUSY})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one rank's process ended. ``signalled``: Frenzy had sent it a signal before.

    ``exit_code`` is negative for a signal, ``None`` when nobody saw the end; ``ended_at`` is in
    seconds since boot.
    """

    rank: int
    exit_code: int | None
    signalled: bool = False
    ended_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What a rank said about itself, up to its end."""

    failure_reason: str = ""
    failure_message: str = ""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    tokens_per_second: float | None = None
    last_step: int | None = None
    warm: bool = False  # it waits, or waited, for the word to train


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended on this node.

    ``stop_reason`` is why Frenzy stopped it, if it did; ``oom_kills`` what the cgroup counted.
    """

    ended_by: EndedBy
    ranks: tuple[RankExit, ...]
    message: str = ""
    stop_reason: StopReason | None = None
    stop_message: str = ""
    oom_kills: int = 0


# What explains other failures comes before what others explain.
_ROOT_CAUSES: Final = (
    StopReason.CUDA_OUT_OF_MEMORY,
    StopReason.HOST_OUT_OF_MEMORY,
    StopReason.LOG_QUOTA_EXCEEDED,
    StopReason.DISK_QUOTA_EXCEEDED,
    StopReason.DATA_ERROR,
    StopReason.CHECKPOINT_ERROR,
    StopReason.USER_CODE_ERROR,
    StopReason.NODE_LOST,
    StopReason.INTERNAL_ERROR,
    StopReason.COMMUNICATION_ERROR,
)
_DISK_SUSPECTS: Final = frozenset({StopReason.USER_CODE_ERROR, StopReason.CHECKPOINT_ERROR})
_KILLED: Final = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


def judge(ending: Ending, reports: Mapping[int, RankReport]) -> tuple[RankOutcome, ...]:
    """Return one outcome per rank, by rank."""
    first = _first_failure(ending.ranks)
    return tuple(
        _outcome(rank, ending, reports.get(rank.rank, RankReport()), first)
        for rank in sorted(ending.ranks, key=lambda rank: rank.rank)
    )


def may_be_disk(outcomes: Iterable[RankOutcome]) -> bool:
    """Tell whether a full disk would explain a failure."""
    return any(outcome.reason in _DISK_SUSPECTS for outcome in outcomes)


def blame_disk(outcomes: Iterable[RankOutcome], disk: str) -> tuple[RankOutcome, ...]:
    """Put a full disk, described by ``disk``, before what it explains.

    What seemed to be the user's code becomes a failure to write, which is tried again.
    """
    return tuple(
        replace(
            outcome,
            reason=StopReason.CHECKPOINT_ERROR,
            message=f"{disk}: {outcome.message}",
        )
        if outcome.reason in _DISK_SUSPECTS
        else outcome
        for outcome in outcomes
    )


def root_cause(outcomes: Iterable[RankOutcome]) -> RankOutcome | None:
    """Return the outcome that explains the others; ``None`` when every rank completed."""
    failed = [outcome for outcome in outcomes if outcome.reason is not StopReason.COMPLETED]
    return min(failed, key=lambda outcome: _precedence(outcome.reason), default=None)


def _precedence(reason: StopReason) -> int:
    return _ROOT_CAUSES.index(reason) if reason in _ROOT_CAUSES else len(_ROOT_CAUSES)


def _first_failure(ranks: Sequence[RankExit]) -> RankExit | None:
    """Return the rank that failed first by itself."""
    failed = [
        rank
        for rank in ranks
        if rank.exit_code not in (None, 0) and not rank.signalled and rank.ended_at is not None
    ]
    return min(failed, key=lambda rank: rank.ended_at or 0.0, default=None)


def _outcome(
    rank: RankExit, ending: Ending, report: RankReport, first: RankExit | None
) -> RankOutcome:
    reason, message = _reported(report) or _inferred(rank, ending, first)
    return RankOutcome(
        rank=rank.rank,
        exit_code=rank.exit_code,
        reason=reason,
        message=message,
        peak_allocated_bytes=report.peak_allocated_bytes,
        peak_reserved_bytes=report.peak_reserved_bytes,
        loss_first=report.loss_first,
        loss_last=report.loss_last,
        tokens_per_second=report.tokens_per_second,
        last_step=report.last_step,
    )


def _reported(report: RankReport) -> tuple[StopReason, str] | None:
    if not report.failure_reason:
        return None
    try:
        return StopReason(report.failure_reason), report.failure_message
    except ValueError:  # a newer trainer's word: keep its text
        text = f"{report.failure_reason}: {report.failure_message}"
        return StopReason.USER_CODE_ERROR, text


def _inferred(rank: RankExit, ending: Ending, first: RankExit | None) -> tuple[StopReason, str]:
    code = rank.exit_code
    if code is None:
        return _unknown(ending)
    if code == 0:
        return StopReason.COMPLETED, ""
    if rank.signalled:
        return _ended_by_us(rank, ending, first)
    if code in _KILLED:
        counted = f" (its cgroup counts {ending.oom_kills})" if ending.oom_kills else ""
        return (
            StopReason.HOST_OUT_OF_MEMORY,
            f"rank {rank.rank} got a SIGKILL that Frenzy did not send: out of host memory{counted}",
        )
    if first is not None and first.rank != rank.rank:
        return (
            StopReason.COMMUNICATION_ERROR,
            f"rank {rank.rank} {_how(code)} after rank {first.rank} had failed",
        )
    return StopReason.USER_CODE_ERROR, f"rank {rank.rank} {_how(code)}"


def _unknown(ending: Ending) -> tuple[StopReason, str]:
    if ending.ended_by is EndedBy.REBOOTED:
        return StopReason.NODE_LOST, "the machine restarted while the rank ran"
    return StopReason.INTERNAL_ERROR, ending.message or "the process that watched the rank was lost"


def _ended_by_us(rank: RankExit, ending: Ending, first: RankExit | None) -> tuple[StopReason, str]:
    """Explain a rank that got a signal from us; its code does not matter any more.

    When a gang is ended, ranks also fail because others have gone: that is no failure of theirs.
    """
    if ending.ended_by is EndedBy.FENCED:
        return StopReason.NODE_LOST, ending.message
    if ending.ended_by is EndedBy.RANK_FAILED:
        cause = f"rank {first.rank}" if first is not None else "another rank"
        return StopReason.COMMUNICATION_ERROR, f"stopped because {cause} had failed"
    if ending.stop_reason is not None:
        why = ending.stop_message or _how(rank.exit_code or 0)
        return ending.stop_reason, f"stopped ({ending.stop_reason}): {why}"
    return StopReason.DRAINED, "stopped by a signal from outside Frenzy"


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
