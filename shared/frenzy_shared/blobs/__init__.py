"""Content-addressed bytes: a port and its directory and HTTP adapters."""
