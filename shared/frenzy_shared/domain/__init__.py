"""Pure, frozen values: what Frenzy talks about. Standard library only."""
