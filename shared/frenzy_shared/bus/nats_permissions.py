"""Who may do what on NATS: least privilege per service, per node, per integration.

Every client listens on inboxes below its own prefix only, so nobody reads another's answers.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from frenzy_shared.messages import subjects
from frenzy_shared.messages.subjects import (
    DECISIONS_STREAM,
    DLQ_STREAM,
    EVENTS_STREAM,
    EVIDENCE_DURABLE,
    EVIDENCE_STREAM,
    LOGS_STREAM,
    MARP_DURABLE,
    ROOT,
    WAKE_DURABLE,
)

_API: Final = "$JS.API"


class BusRole(StrEnum):
    """What an identity on the bus is for."""

    ADMIN = "admin"  # creates streams; an operator's tools
    GATEWAY = "gateway"
    MARP = "marp"
    SCHEDULER = "scheduler"
    NODE = "node"
    INTEGRATION = "integration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Subjects that a client may publish and subscribe; ``answers``: reply to what it is asked."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    never_publish: tuple[str, ...] = ()
    answers: bool = False


def connection_name(role: BusRole, name: str = "") -> str:
    """Return the name that a client connects with; its inboxes are below ``_INBOX_<name>``."""
    return f"{role}-{name}" if role in (BusRole.NODE, BusRole.INTEGRATION) else role.value


def inbox_prefix(connection: str) -> str:
    """Return the prefix of a connection's inboxes."""
    return f"_INBOX_{connection}"


def permissions(role: BusRole, name: str = "", project: str = "") -> Permissions:
    """Return what an identity may do. ``name`` is a node's or an integration's.

    ``project`` is the one whose events an integration reads; empty: all events.
    """
    inbox = f"{inbox_prefix(connection_name(role, name))}.>"
    match role:
        case BusRole.ADMIN:
            return Permissions(publish=(">",), subscribe=(">",))
        case BusRole.GATEWAY:
            return _gateway(inbox)
        case BusRole.MARP:
            return _marp(inbox)
        case BusRole.SCHEDULER:
            return _scheduler(inbox)
        case BusRole.NODE:
            return _node(inbox, name)
        case BusRole.INTEGRATION:
            return _integration(inbox, name, project)


def integration_filter(project: str) -> str:
    """Return the events that an integration of a project reads; of all for an empty one."""
    return subjects.project_events(project) if project else subjects.ALL_EVENTS


def _gateway(inbox: str) -> Permissions:
    return Permissions(
        publish=(
            *_VERIFIES,
            f"{ROOT}.rpc.>",
            *_reads(EVENTS_STREAM),
            f"{_API}.CONSUMER.INFO.{EVENTS_STREAM}.*",  # how far integrations are
            *_reads(LOGS_STREAM),
            *_reads(DLQ_STREAM),
            # Replaying and dropping what was given up.
            f"{_API}.STREAM.MSG.DELETE.{DLQ_STREAM}",
            f"{ROOT}.evt.>",
            f"{ROOT}.evd.>",
        ),
        never_publish=(*_leaves_alone(MARP_DURABLE), *_leaves_alone(WAKE_DURABLE)),
        subscribe=(inbox, subjects.SECRETS),
        answers=True,
    )


def _marp(inbox: str) -> Permissions:
    return Permissions(
        publish=(*_VERIFIES, *_shares(EVENTS_STREAM, MARP_DURABLE), f"{ROOT}.dlq.>"),
        subscribe=(inbox, f"{ROOT}.rpc.marp.*"),
        answers=True,
    )


def _scheduler(inbox: str) -> Permissions:
    return Permissions(
        publish=(
            *_VERIFIES,
            *_shares(EVIDENCE_STREAM, EVIDENCE_DURABLE),
            *_shares(EVENTS_STREAM, WAKE_DURABLE),
            *_reads(EVENTS_STREAM),  # to judge the store's history, and to put it right
            *_reads(DECISIONS_STREAM),
            subjects.ALL_EVENTS,
            subjects.ALL_DECISIONS,
            subjects.desired("*"),
            subjects.MARP_PLAN,  # what a waiting job could run with if its pins were others
            f"{ROOT}.dlq.>",
        ),
        never_publish=_leaves_alone(MARP_DURABLE),
        subscribe=(inbox, subjects.HEARTBEATS, subjects.TELEMETRY, f"{ROOT}.rpc.scheduler.*"),
        answers=True,
    )


def _node(inbox: str, name: str) -> Permissions:
    return Permissions(
        publish=(
            *_VERIFIES,
            subjects.evidence(name, "*"),
            subjects.heartbeat(name),
            subjects.secrets(name),
            f"{ROOT}.log.>",
            subjects.TELEMETRY,
        ),
        subscribe=(inbox, subjects.desired(name)),
    )


def _integration(inbox: str, name: str, project: str) -> Permissions:
    """Pull from a durable that an administrator made, and nothing else.

    Not even creating a consumer: one with a delivery subject would make the server publish for it.
    """
    durable = connection_name(BusRole.INTEGRATION, name)
    return Permissions(
        publish=(
            f"{_API}.CONSUMER.INFO.{EVENTS_STREAM}.{durable}",
            f"{_API}.CONSUMER.MSG.NEXT.{EVENTS_STREAM}.{durable}",
            f"$JS.ACK.{EVENTS_STREAM}.{durable}.>",
        ),
        # What happens now, without a durable: lossy, for dashboards.
        subscribe=(inbox, integration_filter(project)),
    )


def _reads(stream: str) -> tuple[str, ...]:
    """Follow a stream by consumers of one's own."""
    return (
        f"{_API}.CONSUMER.CREATE.{stream}.>",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.*",
        f"{_API}.CONSUMER.DELETE.{stream}.*",
        f"{_API}.STREAM.MSG.GET.{stream}",
    )


def _leaves_alone(durable: str) -> tuple[str, ...]:
    """Keep off another service's durable of the events, which ``_reads`` would allow."""
    return tuple(
        f"{_API}.CONSUMER.{verb}.{EVENTS_STREAM}.{durable}{rest}"
        for verb, rest in (("MSG.NEXT", ""), ("DELETE", ""), ("CREATE", ""), ("CREATE", ".>"))
    )


def _shares(stream: str, durable: str) -> tuple[str, ...]:
    """Work on a durable that all replicas share."""
    return (
        f"{_API}.CONSUMER.INFO.{stream}.{durable}",
        f"{_API}.CONSUMER.CREATE.{stream}.{durable}.>",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.{durable}",
        f"$JS.ACK.{stream}.{durable}.>",
    )


_VERIFIES: Final = tuple(f"{_API}.STREAM.INFO.{stream.name}" for stream in subjects.STREAMS)
