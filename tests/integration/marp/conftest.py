"""Real servers for MARP's process."""

from tests.support.nats import nats_server, nats_url
from tests.support.valkey import valkey, valkey_server

__all__ = ["nats_server", "nats_url", "valkey", "valkey_server"]
