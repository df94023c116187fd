"""Technology behind the scheduler's ports."""
