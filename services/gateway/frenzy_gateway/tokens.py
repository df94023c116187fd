"""API tokens: made, listed and revoked by administrators, each within the own scope."""

import logging
from dataclasses import dataclass
from typing import Final

from frenzy_gateway.callers import Caller
from frenzy_gateway.submission import check_project
from frenzy_shared.auth import ALL_PROJECTS, Role, new_token, token_record
from frenzy_shared.clock import Clock
from frenzy_shared.errors import InvalidState, NotFound, wrong_field
from frenzy_shared.messages.http import TokenInfo, TokenList, TokenRequest, TokenView
from frenzy_shared.state.decisions import token_created, token_revoked
from frenzy_shared.state.port import StateStore, TokenRecord
from frenzy_shared.times import moment

log = logging.getLogger(__name__)

_LONGEST_LIFE_S: Final = 10 * 365 * 86_400
_EXPIRED_KEEP_MS: Final = 30 * 86_400_000  # so long one can see that, and when, it expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What administrators do with tokens. ``own_id`` is of the token in the gateway's settings."""

    state: StateStore
    clock: Clock
    own_id: str = ""

    async def create(self, caller: Caller, request: TokenRequest) -> TokenView:
        """Make a token within the caller's own scope.

        Raises:
            InvalidSpec: naming the wrong field.
            Forbidden: the caller's own scope is smaller.
        """
        role = _check(request)
        caller.require(request.project)
        now, token = self.clock.now_ms(), new_token()
        expires_ms = 0 if request.expires_in_s is None else now + _ceil_ms(request.expires_in_s)
        record = token_record(
            token,
            role=role,
            project=request.project,
            name=request.name,
            created_ms=now,
            expires_ms=expires_ms,
        )
        await self.state.put_token(record, token_created(record, caller.name))
        log.info("%s made token %s: %s of %s", caller.name, token.id, role, request.project)
        return TokenView(
            id=token.id,
            token=token.text,
            name=request.name,
            role=role,
            project=request.project,
            expires_at=moment(expires_ms) if expires_ms else None,
        )

    async def list(self, caller: Caller) -> TokenList:
        """Show the tokens within the caller's scope, oldest first; nobody can see a secret."""
        now_ms = self.clock.now_ms()
        seen = (record for record in await self.state.tokens() if caller.sees(record.project))
        return TokenList(tokens=tuple(_info(record, now_ms) for record in seen))

    async def revoke(self, caller: Caller, token_id: str) -> None:
        """Make a token void, at once and everywhere.

        Raises:
            NotFound: there is none within the caller's scope.
            InvalidState: it is void in another way only: a node's, or the gateway's own.
        """
        record = await self.state.token(token_id)
        if record is None or not caller.sees(record.project):
            raise NotFound(
                f"no token {token_id[:80]!r}", suggestions=("list tokens: frenzy token list",)
            )
        if record.role == Role.NODE:
            node = record.name.removeprefix("node ")
            raise InvalidState(
                f"token {token_id} belongs to {record.name}",
                suggestions=(f"shut the node out: frenzy node revoke {node}",),
            )
        if token_id == self.own_id:
            raise InvalidState(
                f"token {token_id} is the operator's own: the gateway stores it at each start",
                suggestions=("set FRENZY_ADMIN_TOKEN to another one, restart, then revoke this",),
            )
        await self.state.delete_token(token_id, token_revoked(record, caller.name))
        log.warning("%s revoked token %s (%s)", caller.name, token_id, record.name)

    async def forget_expired(self) -> None:
        """Remove tokens that expired long ago.

        Raises:
            Unavailable: the store is.
        """
        oldest_ms = self.clock.now_ms() - _EXPIRED_KEEP_MS
        for record in await self.state.tokens():
            if 0 < record.expires_ms < oldest_ms:
                await self.state.delete_token(record.id)


def _info(record: TokenRecord, now_ms: int) -> TokenInfo:
    return TokenInfo(
        id=record.id,
        name=record.name,
        role=record.role,
        project=record.project,
        created_at=moment(record.created_ms),
        expires_at=moment(record.expires_ms) if record.expires_ms else None,
        last_used_at=moment(record.used_ms) if record.used_ms else None,
        expired=0 < record.expires_ms <= now_ms,
    )


def _check(request: TokenRequest) -> Role:
    """Return the role of a request whose fields are all right."""
    if request.role not in list(Role):
        roles = ", ".join(Role)
        raise wrong_field("role", f"must be one of {roles} (got {request.role!r:.40})")
    if not (1 <= len(request.name) <= 100 and request.name.isprintable()):
        raise wrong_field("name", "use 1 to 100 printable characters")
    if request.project != ALL_PROJECTS:
        check_project(request.project)
    if request.expires_in_s is not None and not 0 < request.expires_in_s <= _LONGEST_LIFE_S:
        raise wrong_field("expires_in_s", "must be above 0 and at most ten years")
    return Role(request.role)


def _ceil_ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
