"""Which of several ranks' endings is the cause, and what to say about it."""

from collections.abc import Iterable
from typing import Final

from frenzy_shared.domain.job import JobRecord, RankOutcome, StopReason

# When one rank dies the others die of it. The first reason in this order explains the rest; what
# is not listed (a node's own reasons) comes after all of them.
_CAUSES: Final = (
    StopReason.CUDA_OUT_OF_MEMORY,
    StopReason.HOST_OUT_OF_MEMORY,
    StopReason.DATA_ERROR,
    StopReason.CHECKPOINT_ERROR,
    StopReason.LOG_QUOTA_EXCEEDED,
    StopReason.DISK_QUOTA_EXCEEDED,
    StopReason.USER_CODE_ERROR,
    StopReason.COMMUNICATION_ERROR,
    StopReason.INTERNAL_ERROR,
)
_SYMPTOMS: Final = frozenset(
    {StopReason.USER_CODE_ERROR, StopReason.COMMUNICATION_ERROR, StopReason.INTERNAL_ERROR}
)


def worst(outcomes: Iterable[RankOutcome]) -> RankOutcome | None:
    """Return the outcome that explains the others, None when every rank completed."""
    failed = [o for o in outcomes if o.reason is not StopReason.COMPLETED]
    return min(failed, key=lambda o: (_rank_of(o.reason), o.rank), default=None)


def better_cause(record: JobRecord, outcomes: Iterable[RankOutcome]) -> RankOutcome | None:
    """Return a later outcome that explains a stop better than its present reason, if any.

    Only a symptom gives way: a stop that a person, a timer or a node's loss caused stays.
    """
    if record.reason not in _SYMPTOMS:
        return None
    cause = worst(o for o in outcomes if o.reason in _CAUSES)
    present = _rank_of(StopReason(record.reason))
    return cause if cause is not None and _rank_of(cause.reason) < present else None


def describe(record: JobRecord, outcome: RankOutcome) -> str:
    """Say which rank ended how."""
    node = ""
    if record.placement is not None and outcome.rank < len(record.placement.devices):
        node = f" on {record.placement.devices[outcome.rank].node}"
    code = "an unknown exit code" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    return f"rank {outcome.rank}{node}: {outcome.message or f'ended with {code}'}"


def _rank_of(reason: StopReason) -> int:
    return _CAUSES.index(reason) if reason in _CAUSES else len(_CAUSES)
