"""The baseline without Frenzy: people choose a GPU kind and a count, and run out of memory.

The rule is ours, documented and seeded: the kind is drawn by how many GPUs of it exist; the count
is the trace's, or half (``under_share``), or double (``over_share``). Whether that fits is MARP's
answer. Whoever runs out of memory notices after ``notice_s``, thinks for ``think_s`` on average,
and asks for twice the count; then, when the count has reached a whole kind, for a larger kind.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.ids import PlanId
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_simulator.jobs import SimJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a user asks for: one plan, which may not fit (``runs_out``)."""

    plan: ResourcePlan
    runs_out: bool


@dataclass(frozen=True, kw_only=True)
class ManualUsers:
    """People with habits. Shares are of jobs; times are seconds."""

    kinds: Sequence[KindSummary]
    seed: int = 0
    under_share: float = 0.2
    over_share: float = 0.2
    notice_s: float = 180.0
    think_s: float = 1200.0

    def ask(self, job: SimJob, plans: Sequence[ResourcePlan], attempt: int) -> Ask:
        """Return the user's ``attempt``-th choice (from 0); ``plans`` are MARP's, not empty."""
        draw = self._random(job, "ask")
        ladder = sorted(self.kinds, key=lambda kind: (kind.memory_bytes, kind.kind))
        kind = draw.choices(ladder, weights=[one.total for one in ladder])[0]
        mistake = draw.random()
        count = job.gpus_requested
        if mistake < self.under_share:
            count = max(count // 2, 1)
        elif mistake < self.under_share + self.over_share:
            count *= 2
        rung = ladder.index(kind)
        for _ in range(attempt):
            if count < ladder[rung].total:
                count *= 2
            else:
                rung, count = min(rung + 1, len(ladder) - 1), job.gpus_requested
        return _ask(ladder[rung], min(count, ladder[rung].total), plans)

    def think_again_s(self, job: SimJob, attempt: int) -> float:
        """Return how long a user takes to come back after running out of memory."""
        return self._random(job, "think", attempt).expovariate(1.0 / self.think_s)

    def _random(self, job: SimJob, *about: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, job.id, *about))))  # noqa: S311 - not a secret


def _ask(kind: KindSummary, count: int, plans: Sequence[ResourcePlan]) -> Ask:
    """Find the plan that ``count`` devices really give; more than are useful stand idle."""
    useful = [plan for plan in plans if plan.kind == kind.kind and plan.device_count <= count]
    if useful:
        best = max(useful, key=lambda plan: plan.device_count)
        identity = PlanId(f"asked-{best.id}-on-{count}")
        return Ask(plan=replace(best, id=identity, device_count=count), runs_out=False)
    identity = PlanId(f"asked-{count}-{kind.kind.lower().replace(' ', '-')}")
    plan = replace(plans[0], id=identity, kind=kind.kind, device_count=count)
    return Ask(plan=plan, runs_out=True)
