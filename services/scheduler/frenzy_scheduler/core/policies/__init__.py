"""Strategies behind one protocol, by the name that settings use."""

from typing import Final

from frenzy_scheduler.core.decisions import Policy
from frenzy_scheduler.core.policies.fifo import Fifo
from frenzy_scheduler.core.policies.has import Has

POLICIES: Final[tuple[Policy, ...]] = (Has(), Fifo())


def policy_named(name: str) -> Policy | None:
    """Return the policy of that name, None when there is none."""
    return next((policy for policy in POLICIES if policy.name == name), None)
