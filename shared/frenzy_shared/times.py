"""Wall-clock times as people and messages have them."""

from datetime import UTC, datetime


def moment(time_ms: float) -> datetime:
    """Return wall-clock milliseconds as a UTC time."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)
