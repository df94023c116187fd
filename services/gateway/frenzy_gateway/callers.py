"""Callers: who a token proves."""

import logging
from dataclasses import dataclass, field
from typing import Final

from frenzy_shared.auth import ALL_PROJECTS, Role, check_token, parse_token
from frenzy_shared.clock import Clock
from frenzy_shared.errors import Forbidden, FrenzyError, Unauthenticated
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

_NOTED: Final = 10_000
_NOTE_EVERY_MS: Final = 60_000  # "last used" need not be more exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, as a valid token proves it."""

    token_id: str
    name: str
    role: Role
    project: str  # or ALL_PROJECTS

    def sees(self, project: str) -> bool:
        """Tell whether the caller's scope covers a project."""
        return self.project in (ALL_PROJECTS, project)

    def require(self, project: str) -> None:
        """Raise ``Forbidden`` unless the caller's scope covers a project."""
        if not self.sees(project):
            raise Forbidden(f"your token is limited to project {self.project!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """Looks tokens up, at each request: what is revoked is void at once, at every gateway.

    ``noted`` holds when this gateway last wrote down that a token was used, by its id.
    """

    state: StateStore
    clock: Clock
    noted: dict[str, int] = field(default_factory=dict[str, int])

    async def authenticate(self, text: str) -> Caller:
        """Return who holds a token; ``Unauthenticated`` when nobody does."""
        token = parse_token(text)
        if token is None:
            raise Unauthenticated("this is not an API token; they look like frz_<id>_<secret>")
        now_ms = self.clock.now_ms()
        record = check_token(token, await self.state.token(token.id), now_ms)
        await self._note_use(record.id, now_ms)
        return Caller(
            token_id=record.id,
            name=record.name or record.id,
            role=Role(record.role),
            project=record.project,
        )

    async def _note_use(self, token_id: str, now_ms: int) -> None:
        """Write down that a token was used; a store that cannot is no reason to refuse."""
        if now_ms - self.noted.get(token_id, 0) < _NOTE_EVERY_MS:
            return
        if len(self.noted) >= _NOTED:
            self.noted.clear()
        self.noted[token_id] = now_ms
        try:
            await self.state.use_token(token_id, now_ms)
        except FrenzyError as error:
            log.warning("the use of token %s was not noted: %s", token_id, error.message)
