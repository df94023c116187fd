"""Pure prediction and planning."""
