"""How machines become nodes: a one-time token, a key of their own, and what they need to begin.

The bus's users file is the truth about who may connect. The gateway writes it where it runs
beside nats-server (``frenzy up --listen``); the server's keeper reloads it.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from frenzy_gateway.callers import Caller
from frenzy_shared.addresses import is_loopback
from frenzy_shared.auth import (
    ALL_PROJECTS,
    EnrolmentToken,
    Role,
    fingerprint,
    new_enrolment_token,
    new_token,
    parse_enrolment_token,
    token_record,
)
from frenzy_shared.bus.nats_permissions import BusRole
from frenzy_shared.bus.nats_users import Identity, Invitation, UsersFile, is_public_key
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import is_name
from frenzy_shared.errors import Forbidden, InvalidState, NotFound, wrong_field
from frenzy_shared.messages import http
from frenzy_shared.state.decisions import token_created, token_revoked
from frenzy_shared.state.port import StateStore
from frenzy_shared.times import moment

log = logging.getLogger(__name__)

_LONGEST_S: Final = 7 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """Invites nodes, admits them, and shuts them out again. ``users`` None: not from here."""

    state: StateStore
    clock: Clock
    users: UsersFile | None
    nats_url: str  # as other machines reach it
    authority: Path | None  # PEM of the certificate authority of this cluster

    def authority_pem(self) -> str:
        """Return the authority's certificate; it is no secret.

        Raises:
            NotFound: this server has none.
        """
        if self.authority is None:
            raise NotFound("this server has no certificate authority of its own")
        return self.authority.read_text(encoding="ascii")

    def invite(self, request: http.NodeTokenRequest) -> http.NodeTokenView:
        """Make a one-time token. It carries the fingerprint of the authority to be trusted.

        Raises:
            InvalidSpec: naming the wrong field.
            InvalidState: nodes are not enrolled by this server.
        """
        users = self._users()
        if request.node:
            _check_node(request.node)
        if not 1 <= request.expires_in_s <= _LONGEST_S:
            raise wrong_field("expires_in_s", f"must be from 1 to {_LONGEST_S} (a week)")
        authority = "" if self.authority is None else fingerprint(self.authority_pem())
        token = new_enrolment_token(authority)
        now_ms = self.clock.now_ms()
        expires_ms = now_ms + round(request.expires_in_s * 1000)
        users.invite(
            Invitation(
                id=token.id,
                secret_sha256=token.secret_sha256,
                node=request.node,
                expires_ms=expires_ms,
            ),
            now_ms,
        )
        return http.NodeTokenView(
            token=token.text, node=request.node, expires_at=moment(expires_ms)
        )

    async def enrol(self, request: http.EnrolRequest) -> http.EnrolView:
        """Admit a node by its token; a second use of the token is refused.

        Raises:
            Forbidden: the token is not valid.
            InvalidSpec: the name or the key is malformed.
            InvalidState: the name belongs to another node.
        """
        users = self._users()
        invitation = _parsed(request.token)
        _check_node(request.node)
        if not is_public_key(request.public_key):
            raise wrong_field("public_key", "must be the public part of a user nkey (U...)")
        now_ms = self.clock.now_ms()
        token = new_token()
        identity = Identity(
            role=BusRole.NODE,
            name=request.node,
            public_key=request.public_key,
            created_ms=now_ms,
            token_id=token.id,
        )
        users.accept(invitation.id, invitation.secret_sha256, identity, now_ms)
        record = token_record(
            token,
            role=Role.NODE,
            project=ALL_PROJECTS,
            name=f"node {request.node}",
            created_ms=now_ms,
        )
        await self.state.put_token(record, token_created(record, f"node {request.node}"))
        log.info("node %s is enrolled", request.node, extra={"node": request.node})
        return http.EnrolView(node=request.node, nats_url=self.nats_url, token=token.text)

    async def revoke(self, caller: Caller, node: str) -> None:
        """Shut a node out: its connections end at once, its token is void.

        Raises:
            NotFound: no such node was enrolled.
            InvalidState: it belongs to the head itself, whose next start would admit it again.
        """
        users = self._users()
        known = {one.name: one for one in users.identities() if one.role is BusRole.NODE}
        if node not in known:
            raise NotFound(
                f"no node {node!r} is enrolled", suggestions=("list nodes: frenzy nodes",)
            )
        if not known[node].token_id:
            raise InvalidState(
                f"node {node} did not join with a token: the head itself runs it",
                suggestions=(f"give it no more work: frenzy nodes drain {node}",),
            )
        users.remove(BusRole.NODE, node)
        record = await self.state.token(known[node].token_id)
        if record is not None:
            await self.state.delete_token(record.id, token_revoked(record, caller.name))
        log.info("%s revoked the credentials of node %s", caller.name, node, extra={"node": node})

    def _users(self) -> UsersFile:
        bus = urlsplit(self.nats_url)
        alone = bus.scheme != "tls" and is_loopback(bus.hostname or "localhost")
        if self.users is None or alone:
            raise InvalidState(
                "this server does not enrol nodes",
                suggestions=(
                    "start it for other machines: frenzy up --listen ADDRESS",
                    "or set FRENZY_BUS_USERS and FRENZY_BUS_PUBLIC_URL beside nats-server",
                ),
            )
        return self.users


def _parsed(text: str) -> EnrolmentToken:
    token = parse_enrolment_token(text)
    if token is None:
        raise Forbidden("this is not an enrolment token; they look like fze_<id>_...")
    return token


def _check_node(node: str) -> None:
    if not is_name(node):
        raise wrong_field("node", "use 1-63 characters of a-z, 0-9 and '-', no '-' at either end")
