"""How much memory training takes, moment by moment. Pure arithmetic, no torch."""
