"""Frenzy: submit a model, don't pick GPUs."""
