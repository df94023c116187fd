"""The tokens' and projects' part of the store on a server: calls of ``decisions.lua``."""

import secrets
from dataclasses import replace
from typing import Any

from frenzy_shared.domain.project import Project
from frenzy_shared.messages.codec import from_json, to_json
from frenzy_shared.state.port import Announcement, Result, TokenRecord
from frenzy_shared.state.records import call_result, dumps, loads
from frenzy_shared.state.requests import announced_request


class RedisDecisions:
    """Mixed into ``RedisStore``, which knows how to call the server."""

    async def _call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        raise NotImplementedError

    async def _document(self, name: str, owner: str) -> Any:  # noqa: ANN401
        raise NotImplementedError

    async def put_token(self, token: TokenRecord, told: Announcement | None = None) -> None:
        """Store a token."""
        request = announced_request(token.id, told, text=dumps(to_json(token)))
        await self._decide("put_token", request)

    async def delete_token(self, token_id: str, told: Announcement | None = None) -> bool:
        """Remove a token."""
        return (await self._decide("delete_token", announced_request(token_id, told))).ok

    async def token(self, token_id: str) -> TokenRecord | None:
        """Read a token."""
        token = await self._document("token", token_id)
        return None if token is None else from_json(TokenRecord, token)

    async def tokens(self) -> tuple[TokenRecord, ...]:
        """Read all tokens, by age."""
        found = [
            replace(from_json(TokenRecord, loads(text)), used_ms=int(used))
            for text, used in await self._call("tokens")
        ]
        return tuple(sorted(found, key=lambda token: (token.created_ms, token.id)))

    async def use_token(self, token_id: str, at_ms: int) -> None:
        """Note that a token was used."""
        await self._call("use_token", token_id, at_ms)

    async def put_project(self, project: Project, told: Announcement | None = None) -> None:
        """Store a project, and what ``submit`` looks at."""
        text, limit = dumps(to_json(project)), project.max_unfinished_jobs
        request = announced_request(project.name, told, text=text, limit=limit)
        await self._decide("put_project", request)

    async def _decide(self, function: str, request: str) -> Result:
        op = f"decide:{secrets.token_hex(16)}"  # only the client library repeats it
        return call_result(await self._call(function, op, request))
