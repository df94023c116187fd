"""HAS: decides which job gets which devices, and owns a job's life after that."""
