"""The store of truth: a port, an in-memory double, and the Valkey / Redis adapter."""
