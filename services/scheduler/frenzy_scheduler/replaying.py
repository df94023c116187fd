"""Run recorded cycles again, with the policy that decided or with another one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE, policy_named
from frenzy_scheduler.recording import Cycle, told
from frenzy_shared.errors import BadRequest

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a policy decides from a recorded input, beside what was decided then, by job."""

    now_ms: int
    policy: str
    recorded_policy: str
    decisions: dict[str, Json]
    recorded: dict[str, Json]

    @property
    def differences(self) -> list[str]:
        """Return the jobs whose decision is another one."""
        jobs = sorted({*self.decisions, *self.recorded})
        return [job for job in jobs if self.decisions.get(job) != self.recorded.get(job)]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "now_ms": self.now_ms,
            "policy": self.policy,
            "recorded_policy": self.recorded_policy,
            "decisions": list(self.decisions.values()),
            "recorded": list(self.recorded.values()),
            "differences": self.differences,
        }


def replay(cycle: Cycle, policy: str | None = None) -> Replay:
    """Decide again.

    Raises:
        BadRequest: there is no such policy.
    """
    question = cycle.question
    if policy is not None:
        found = policy_named(policy)
        if found is None:
            names = ", ".join(one.name for one in (*POLICIES, *PREEMPTIVE))
            raise BadRequest(
                f"there is no policy {policy[:40]!r}", suggestions=(f"one of {names}",)
            )
        question = replace(question, policy=found)
    return Replay(
        now_ms=question.now_ms,
        policy=question.policy.name,
        recorded_policy=cycle.question.policy.name,
        decisions={one["job"]: one for one in told(question.answer(), question.now_ms)},
        recorded={one["job"]: one for one in cycle.decisions},
    )
