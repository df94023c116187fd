"""Bodies of the HTTP API about integrations: programs that follow events on the bus."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from frenzy_shared.messages.base import Wire


class IntegrationRequest(Wire):
    """Let a program follow events. ``public_key`` is of its own nkey; the seed stays with it.

    ``events`` are kinds such as ``job.failed``; none: all of the project. ``history``: from the
    oldest event that is kept on, else from now on.
    """

    name: str
    public_key: str
    project: str = "default"  # "*": all projects, nodes and tokens too
    events: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    history: bool = False


class IntegrationKey(Wire):
    """The public half of the nkey with which a known integration goes on."""

    public_key: str


class IntegrationAccess(Wire):
    """What a program needs beside its seed to pull from its durable consumer."""

    name: str
    url: str  # of nats-server
    stream: str
    durable: str
    inbox_prefix: str  # of the client: others it may not listen on
    authority: str = ""  # PEM of the certificate authority to trust, where it is the cluster's own


class IntegrationView(Wire):
    """An integration and how far it is. ``missing``: its consumer is gone; rotating makes it."""

    name: str
    project: str
    events: tuple[str, ...] = ()
    created_at: datetime | None = None
    waiting: int = 0  # events that it did not get yet
    unacknowledged: int = 0  # that it got and did not say to be done with
    connected: bool = False
    missing: bool = False


class IntegrationList(Wire):
    """Integrations, by name."""

    integrations: tuple[IntegrationView, ...]
