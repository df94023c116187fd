"""Strategies by the name that settings and the command line use.

``POLICIES`` never touch a running job, ``PREEMPTIVE`` ones stop, move and resize jobs. The service
and the simulator run both.
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
PREEMPTIVE: Final[tuple[Strategy, ...]] = (Frenzy(), PreemptiveSrtf(), Las())


def policy_named(name: str) -> Strategy | None:
    """Return the strategy of that name, None when there is none."""
    return next((one for one in (*POLICIES, *PREEMPTIVE) if one.name == name), None)
