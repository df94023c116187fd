"""Strategies behind two protocols, by the name that settings and the command line use.

``POLICIES`` never touch a running job: the service runs them. ``PREEMPTIVE`` ones stop, move and
resize jobs, which the service does not carry out in this release: they are for the simulator.
"""

from typing import Final

from frenzy_scheduler.core.decisions import Allocator, Policy
from frenzy_scheduler.core.policies.backfill import Backfill
from frenzy_scheduler.core.policies.fifo import Fifo
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_scheduler.core.policies.has import Has
from frenzy_scheduler.core.policies.las import Las
from frenzy_scheduler.core.policies.srtf import PreemptiveSrtf, Srtf

POLICIES: Final[tuple[Policy, ...]] = (Has(), Fifo(), Srtf())
ALLOCATORS: Final[tuple[Allocator, ...]] = (Backfill(), Frenzy(), PreemptiveSrtf(), Las())


def policy_named(name: str) -> Policy | None:
    """Return the policy of that name that the service can run, None when there is none."""
    return next((policy for policy in POLICIES if policy.name == name), None)


def strategy_named(name: str) -> Policy | Allocator | None:
    """Return any strategy of that name, also one that only the simulator can run."""
    return policy_named(name) or next((one for one in ALLOCATORS if one.name == name), None)
