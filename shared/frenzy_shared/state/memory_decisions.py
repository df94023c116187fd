"""The tokens' and projects' part of the store in memory: ``decisions.lua`` in Python."""

from dataclasses import replace

from frenzy_shared.domain.project import Project
from frenzy_shared.state.port import Announcement, TokenRecord
from frenzy_shared.state.records import in_safe_mode
from frenzy_shared.state.tables import Tables, copy


class MemoryDecisions:
    """Mixed into ``MemoryStore``; synchronous inside, hence atomic."""

    _tables: Tables

    async def put_token(self, token: TokenRecord, told: Announcement | None = None) -> None:
        """Store a token."""
        self._decide(told)
        used_ms = self._tables.tokens.get(token.id, token).used_ms
        self._tables.tokens[token.id] = replace(token, used_ms=used_ms)
        self._tell(f"token:{token.id}", told)

    async def delete_token(self, token_id: str, told: Announcement | None = None) -> bool:
        """Remove a token."""
        self._decide(told)
        if self._tables.tokens.pop(token_id, None) is None:
            return False
        self._tell(f"token:{token_id}", told)
        return True

    async def token(self, token_id: str) -> TokenRecord | None:
        """Read a token."""
        token = self._tables.tokens.get(token_id)
        return None if token is None else replace(token, used_ms=0)

    async def tokens(self) -> tuple[TokenRecord, ...]:
        """Read all tokens, by age."""
        found = self._tables.tokens.values()
        return tuple(sorted(found, key=lambda token: (token.created_ms, token.id)))

    async def use_token(self, token_id: str, at_ms: int) -> None:
        """Note that a token was used."""
        if token := self._tables.tokens.get(token_id):
            self._tables.tokens[token_id] = replace(token, used_ms=at_ms)

    async def put_project(self, project: Project, told: Announcement | None = None) -> None:
        """Store a project."""
        self._decide(told)
        self._tables.projects[project.name] = project
        self._tell(f"project:{project.name}", told)

    def _decide(self, told: Announcement | None) -> None:
        if told is not None and self._tables.safe_mode:
            raise in_safe_mode(self._tables.safe_mode)

    def _tell(self, entity: str, told: Announcement | None) -> None:
        if told is None:
            return
        self._tables.decisions += 1
        record = {"version": self._tables.decisions, **copy(told.record)}
        self._tables.post_record(entity, entity, record, told.messages)
        self._wake()

    def _wake(self) -> None:
        raise NotImplementedError
