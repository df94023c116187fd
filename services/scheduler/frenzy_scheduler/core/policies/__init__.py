"""Strategies by the name that settings and the command line use.

``POLICIES`` never touch a running job: the service runs them. ``SIMULATED`` ones stop, move and
resize jobs, which the service does not carry out in this release: they are for ``frenzy simulate``.
"""

from typing import Final

from frenzy_scheduler.core.decisions import Strategy
from frenzy_scheduler.core.policies.backfill import Backfill
from frenzy_scheduler.core.policies.fifo import Fifo
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_scheduler.core.policies.has import Has
from frenzy_scheduler.core.policies.las import Las
from frenzy_scheduler.core.policies.srtf import PreemptiveSrtf, Srtf

POLICIES: Final[tuple[Strategy, ...]] = (Has(), Fifo(), Srtf(), Backfill())
SIMULATED: Final[tuple[Strategy, ...]] = (Frenzy(), PreemptiveSrtf(), Las())


def policy_named(name: str) -> Strategy | None:
    """Return the policy of that name that the service can run, None when there is none."""
    return next((policy for policy in POLICIES if policy.name == name), None)


def strategy_named(name: str) -> Strategy | None:
    """Return the strategy of that name, also one that only the simulator can run."""
    return next((one for one in (*POLICIES, *SIMULATED) if one.name == name), None)
