"""Programs that follow events: each with a key of its own, for one durable consumer only.

Who may connect is in the bus's users file (see ``enrolment``); the consumer is on the bus. An
identity without its consumer can do nothing, and a consumer without its identity is nobody's.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from frenzy_gateway.callers import Caller
from frenzy_gateway.submission import check_project
from frenzy_shared.auth import ALL_PROJECTS
from frenzy_shared.bus.nats_permissions import (
    BusRole,
    connection_name,
    inbox_prefix,
    integration_filter,
)
from frenzy_shared.bus.nats_users import Identity, UsersFile, is_public_key
from frenzy_shared.bus.port import Bus
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import is_name
from frenzy_shared.errors import FrenzyError, InvalidState, NotFound, wrong_field
from frenzy_shared.messages.integrations import (
    IntegrationAccess,
    IntegrationList,
    IntegrationRequest,
    IntegrationView,
)
from frenzy_shared.messages.kinds import EVENT_KINDS, OF_PROJECTS
from frenzy_shared.messages.subjects import EVENTS_STREAM, events_of_kind
from frenzy_shared.times import moment

log = logging.getLogger(__name__)

_LONGEST_NAME: Final = 40  # its durable's name is longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrations:
    """Makes, shows, re-keys and removes them. ``users`` None: not from this server."""

    bus: Bus
    clock: Clock
    users: UsersFile | None
    nats_url: str
    authority_pem: Callable[[], str]

    async def create(self, caller: Caller, request: IntegrationRequest) -> IntegrationAccess:
        """Let a program follow events, from now on or from the oldest that is kept.

        The same request again, its answer lost, is answered the same.

        Raises:
            InvalidSpec: naming the wrong field.
            InvalidState: the name or the key is taken, or this server admits nobody.
            Unavailable: the bus is.
        """
        users = self._users()
        filters = _checked(request)
        identity = Identity(
            role=BusRole.INTEGRATION,
            name=request.name,
            project="" if request.project == ALL_PROJECTS else request.project,
            events=request.events,
            public_key=request.public_key,
            created_ms=self.clock.now_ms(),
        )
        if any(replace(one, created_ms=identity.created_ms) == identity for one in self._known()):
            return self._access(request.name)
        users.add(identity)
        try:
            await self.bus.remove_durable(EVENTS_STREAM, _durable(request.name))
            await self._add_durable(identity, filters, history=request.history)
        except FrenzyError:
            users.remove(BusRole.INTEGRATION, request.name)
            raise
        log.warning("%s made integration %s of %s", caller.name, request.name, request.project)
        return self._access(request.name)

    async def list(self) -> IntegrationList:
        """Show all integrations and how far they are.

        Raises:
            Unavailable: the bus is.
        """
        found = sorted(self._known(), key=lambda one: one.name)
        return IntegrationList(integrations=tuple([await self._view(one) for one in found]))

    async def rotate(self, caller: Caller, name: str, public_key: str) -> IntegrationAccess:
        """Give an integration another key: the old one's connections end, its place stays.

        A consumer that was lost with the bus's disk is made again, and goes on from now.

        Raises:
            NotFound: there is none of this name.
            InvalidSpec, InvalidState: the key is malformed, or another's.
        """
        users, identity = self._users(), self._identity(name)
        _check_key(public_key)
        users.put(replace(identity, public_key=public_key))
        if await self.bus.durable_state(EVENTS_STREAM, _durable(name)) is None:
            await self._add_durable(identity, _filters(identity), history=False)
        log.warning("%s gave integration %s another key", caller.name, name)
        return self._access(name)

    async def revoke(self, caller: Caller, name: str) -> None:
        """Shut an integration out: its connections end at once, its place is forgotten.

        Raises:
            NotFound: there is none of this name.
        """
        self._identity(name)
        self._users().remove(BusRole.INTEGRATION, name)
        await self.bus.remove_durable(EVENTS_STREAM, _durable(name))
        log.warning("%s revoked integration %s", caller.name, name)

    async def _add_durable(
        self, identity: Identity, filters: Sequence[str], *, history: bool
    ) -> None:
        durable = _durable(identity.name)
        await self.bus.add_durable(EVENTS_STREAM, durable, filters, history=history)

    async def _view(self, identity: Identity) -> IntegrationView:
        state = await self.bus.durable_state(EVENTS_STREAM, _durable(identity.name))
        return IntegrationView(
            name=identity.name,
            project=identity.project or ALL_PROJECTS,
            events=identity.events,
            created_at=moment(identity.created_ms) if identity.created_ms else None,
            waiting=state.pending if state else 0,
            unacknowledged=state.unacknowledged if state else 0,
            connected=state is not None and state.pulling,
            missing=state is None,
        )

    def _known(self) -> tuple[Identity, ...]:
        known = self._users().identities()
        return tuple(one for one in known if one.role is BusRole.INTEGRATION)

    def _identity(self, name: str) -> Identity:
        for one in self._known():
            if one.name == name:
                return one
        raise NotFound(
            f"no integration {name[:80]!r}",
            suggestions=("list integrations: frenzy admin integration list",),
        )

    def _access(self, name: str) -> IntegrationAccess:
        durable = _durable(name)
        return IntegrationAccess(
            name=name,
            url=self.nats_url,
            stream=EVENTS_STREAM,
            durable=durable,
            inbox_prefix=inbox_prefix(durable),
            authority=self.authority_pem(),
        )

    def _users(self) -> UsersFile:
        if self.users is None:
            raise InvalidState(
                "this server cannot admit anybody to the bus",
                suggestions=("set FRENZY_BUS_USERS where the gateway runs beside nats-server",),
            )
        return self.users


def _durable(name: str) -> str:
    return connection_name(BusRole.INTEGRATION, name)


def _checked(request: IntegrationRequest) -> tuple[str, ...]:
    """Return the filters of a request whose fields are all right."""
    if not (is_name(request.name) and len(request.name) <= _LONGEST_NAME):
        raise wrong_field(
            "name", f"use 1-{_LONGEST_NAME} characters of a-z, 0-9 and '-', no '-' at either end"
        )
    if request.project != ALL_PROJECTS:
        check_project(request.project)
    _check_key(request.public_key)
    project = "" if request.project == ALL_PROJECTS else request.project
    for event in request.events:
        _check_event(event, project)
    return _event_filters(request.events, project)


def _filters(identity: Identity) -> tuple[str, ...]:
    return _event_filters(identity.events, identity.project)


def _event_filters(events: Sequence[str], project: str) -> tuple[str, ...]:
    if not events:
        return (integration_filter(project),)
    return tuple(events_of_kind(project or "*", *event.split(".")) for event in events)


def _check_event(event: str, project: str) -> None:
    entity, _, kind = event.partition(".")
    offered = [name for name in EVENT_KINDS if not project or name in OF_PROJECTS]
    if entity not in offered or kind not in EVENT_KINDS[entity]:
        known = ", ".join(f"{name}.{one}" for name in offered for one in EVENT_KINDS[name])
        where = "" if not project else f" of project {project}"
        raise wrong_field("events", f"{event[:80]!r} is no kind of event{where}; known: {known}")


def _check_key(public_key: str) -> None:
    if not is_public_key(public_key):
        raise wrong_field("public_key", "must be the public part of a user nkey (U...)")
