"""Parts of answers about waiting, the same on the bus and over HTTP. Times are RFC 3339, UTC."""

from datetime import datetime

from frenzy_shared.messages.base import Wire


class TimeBand(Wire):
    """As likely before ``p50`` as after, and in 9 of 10 cases before ``p90``.

    None: later than the forecast reaches.
    """

    p50: datetime | None = None
    p90: datetime | None = None


class Eta(Wire):
    """When a job is predicted to start (None: it has) and to end."""

    start: TimeBand | None = None
    end: TimeBand


class Basis(Wire):
    """What predicted times rest on: so many possible futures of the queue.

    ``reaches``: some of them were computed only so far; None: all of them to their ends.
    """

    futures: int
    reaches: datetime | None = None


class WouldStart(Wire):
    """One change with which the scheduler would start a job, as it has checked, and how.

    ``what``: pin, time, line, priority, quota or node. ``after_s``: seconds from now, 0: now.
    """

    what: str
    text: str
    plan: str
    after_s: float = 0.0


class QueueEntry(Wire):
    """One waiting job. ``position`` counts from 1 over all projects."""

    position: int
    job: str
    name: str
    project: str
    priority: int
    reason: str
    message: str
    submitted_at: datetime
    eta: Eta | None = None
