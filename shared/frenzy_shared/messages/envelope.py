"""Events on the wire: CloudEvents 1.0, structured JSON, with W3C trace context."""

from typing import Any, Literal

from frenzy_shared.messages.base import Wire

TYPE_PREFIX = "dev.frenzy."


class CloudEvent(Wire):
    """One event. ``data`` holds the change; ``data["record"]`` the entity right after it.

    ``id`` is ``<entity id>:<version>:<n>``; ``subject`` is the entity (``job:<id>``).
    ``history`` tells a store whose content was replaced by an older one.
    """

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str  # "/frenzy/<project>" or "/frenzy/cluster"
    type: str  # "dev.frenzy.job.placed.v1"
    subject: str
    time: str  # RFC 3339, UTC
    datacontenttype: Literal["application/json"] = "application/json"
    traceparent: str = ""
    history: str = ""  # extension: "<gen>:<number>" of the store's history
    data: dict[str, Any]


def event_type(entity: str, kind: str) -> str:
    """Return the CloudEvents type, for example ``dev.frenzy.job.placed.v1``."""
    return f"{TYPE_PREFIX}{entity}.{kind}.v1"


def short_kind(type_: str) -> str:
    """Return the short kind of a CloudEvents type made by ``event_type``."""
    return type_.removeprefix(TYPE_PREFIX).split(".")[1]
