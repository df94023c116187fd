"""Callers: who a token proves, and the tokens they make for others."""

import logging
from dataclasses import dataclass

from frenzy_gateway.submission import check_project
from frenzy_shared.auth import (
    ALL_PROJECTS,
    Role,
    check_token,
    new_token,
    parse_token,
    token_record,
)
from frenzy_shared.clock import Clock
from frenzy_shared.errors import FieldProblem, Forbidden, InvalidSpec, Unauthenticated
from frenzy_shared.messages.http import TokenRequest, TokenView
from frenzy_shared.state.port import StateStore
from frenzy_shared.times import moment

log = logging.getLogger(__name__)

_LONGEST_LIFE_S = 10 * 365 * 86_400


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
    """Looks tokens up and makes new ones."""

    state: StateStore
    clock: Clock

    async def authenticate(self, text: str) -> Caller:
        """Return who holds a token; ``Unauthenticated`` when nobody does."""
        token = parse_token(text)
        if token is None:
            raise Unauthenticated("this is not an API token; they look like frz_<id>_<secret>")
        record = check_token(token, await self.state.token(token.id), self.clock.now_ms())
        return Caller(
            token_id=record.id,
            name=record.name or record.id,
            role=Role(record.role),
            project=record.project,
        )

    async def create_token(self, caller: Caller, request: TokenRequest) -> TokenView:
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
        await self.state.put_token(record)
        log.info("%s made token %s: %s of %s", caller.name, token.id, role, request.project)
        return TokenView(
            id=token.id,
            token=token.text,
            name=request.name,
            role=role,
            project=request.project,
            expires_at=moment(expires_ms) if expires_ms else None,
        )


def _check(request: TokenRequest) -> Role:
    """Return the role of a request whose fields are all right."""
    if request.role not in list(Role):
        roles = ", ".join(Role)
        raise _invalid("role", f"must be one of {roles} (got {request.role!r:.40})")
    if not (1 <= len(request.name) <= 100 and request.name.isprintable()):
        raise _invalid("name", "use 1 to 100 printable characters")
    if request.project != ALL_PROJECTS:
        check_project(request.project)
    if request.expires_in_s is not None and not 0 < request.expires_in_s <= _LONGEST_LIFE_S:
        raise _invalid("expires_in_s", "must be above 0 and at most ten years")
    return Role(request.role)


def _ceil_ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _invalid(name: str, detail: str) -> InvalidSpec:
    problem = FieldProblem(pointer=f"/{name}", detail=detail)
    return InvalidSpec(f"{name}: {detail}", problems=(problem,))
