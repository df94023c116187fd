"""Published schedulers, re-implemented under our licence, for comparison only."""
