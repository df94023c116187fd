"""Pure scheduling and lifecycle decisions."""
