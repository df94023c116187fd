"""Durables that others pull from: made, looked at and removed for them."""

from collections.abc import Sequence
from typing import Any, Final

from frenzy_shared.bus.nats_api import CONSUMER_NOT_FOUND, ApiError, call
from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.bus.port import DurableState

_ACK_WAIT_NS: Final = 60 * 10**9
_MAX_ACK_PENDING: Final = 1000


async def add_durable(
    connection: Connection, stream: str, durable: str, filters: Sequence[str], *, history: bool
) -> None:
    """Create a durable, or leave one that is the same."""
    config: dict[str, Any] = {
        "durable_name": durable,
        "name": durable,
        "filter_subjects": list(filters),
        "deliver_policy": "all" if history else "new",
        "ack_policy": "explicit",
        "ack_wait": _ACK_WAIT_NS,
        "max_ack_pending": _MAX_ACK_PENDING,
        "max_deliver": -1,
        "replay_policy": "instant",
    }
    body = {"stream_name": stream, "config": config, "action": "create"}
    await call(connection, f"CONSUMER.CREATE.{stream}.{durable}", body)


async def durable_state(connection: Connection, stream: str, durable: str) -> DurableState | None:
    """Return how far a durable is; None when there is none."""
    try:
        info = await call(connection, f"CONSUMER.INFO.{stream}.{durable}")
    except ApiError as error:
        if error.number == CONSUMER_NOT_FOUND:
            return None
        raise
    return DurableState(
        pending=int(info.get("num_pending", 0)),
        unacknowledged=int(info.get("num_ack_pending", 0)),
        pulling=int(info.get("num_waiting", 0)) > 0,
    )


async def remove_durable(connection: Connection, stream: str, durable: str) -> bool:
    """Remove a durable; False when there is none."""
    try:
        await call(connection, f"CONSUMER.DELETE.{stream}.{durable}")
    except ApiError as error:
        if error.number == CONSUMER_NOT_FOUND:
            return False
        raise
    return True
