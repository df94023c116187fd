"""Measured public training runs: what a run is, and what the term model predicts for it."""
