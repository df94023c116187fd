"""Plans that were just made, for whoever asks the same again.

A job is asked about when it is submitted and planned when its event comes; the jobs of a sweep
often differ in what no plan depends on.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from frenzy_marp.core.learning import Experience
from frenzy_shared.domain.plan import PlanSet

KEPT: Final = 256  # plan sets; one takes some 100 KiB at most


@dataclass(kw_only=True)
class Memo:
    """The last plan sets by what they were made from. What was learned since makes all stale."""

    _experience: Experience | None = None
    _plans: dict[Hashable, PlanSet] = field(default_factory=dict[Hashable, PlanSet])

    def plans(
        self, question: Hashable, experience: Experience, make: Callable[[], PlanSet]
    ) -> PlanSet:
        """Return the answer to a question; errors are not remembered."""
        if experience is not self._experience:
            self._experience = experience
            self._plans.clear()
        found = self._plans.pop(question, None) or make()
        self._plans[question] = found  # the one asked for last stands last
        if len(self._plans) > KEPT:
            del self._plans[next(iter(self._plans))]
        return found
