"""When a node that refuses launches should get no more of them.

A job that no node can start would drain one node after the other, so a refusal counts only while
no other node has refused the same job: one job can cost the cluster one node at most.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from frenzy_shared.domain.cluster import NodeRecord, Strike


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikeRule:
    """So many refusals within a time drain a node; a ``limit`` of 0 never does."""

    limit: int
    window_s: float


def struck(
    node: NodeRecord, cluster: Iterable[NodeRecord], job: str, rule: StrikeRule, now_ms: int
) -> tuple[Strike, ...] | None:
    """Return a node's strikes after it refused a job; None when the job is to blame."""
    since_ms = now_ms - round(rule.window_s * 1000)
    for other in cluster:
        if other.id != node.id and any(
            strike.job == job and strike.time_ms >= since_ms for strike in other.strikes
        ):
            return None
    recent = (strike for strike in node.strikes if strike.time_ms >= since_ms)
    return (*recent, Strike(time_ms=now_ms, job=job))[-max(rule.limit, 1) :]


def is_out(strikes: tuple[Strike, ...], rule: StrikeRule) -> bool:
    """Tell whether a node has as many strikes as it may."""
    return 0 < rule.limit <= len(strikes)
