"""Drive the scheduler's own ``cycle`` with a virtual clock: months of a cluster in seconds."""
