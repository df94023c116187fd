"""Delivery: a port, an in-memory double, and the NATS JetStream adapter."""
