"""The discrete-event simulator (drives the scheduler core)."""
