"""The published schedulers by name. Importing this needs a solver."""

from frenzy_scheduler.core.decisions import Allocator
from frenzy_simulator.rivals.gavel import Gavel
from frenzy_simulator.rivals.sia import Sia


def rival(name: str) -> Allocator:
    """Return a rival of that name, new: some remember what they did."""
    if name == "gavel":
        return Gavel()
    return Sia(name=name, informed=name == "sia-informed")
