"""The secrets' part of the store on a server: calls of ``secrets.lua``."""

from typing import Any

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.messages.codec import from_json, to_json
from frenzy_shared.state.records import dumps, loads
from frenzy_shared.state.secrets import SecretRecord


class RedisSecrets:
    """Mixed into ``RedisStore``, which knows how to call the server."""

    async def _call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        raise NotImplementedError

    async def put_secret(
        self, secret: SecretRecord, *, replacing: SecretRecord | None = None
    ) -> bool:
        """Store a secret."""
        expected = "" if replacing is None else dumps(to_json(replacing))
        text = dumps(to_json(secret))
        return bool(await self._call("put_secret", secret.project, secret.name, text, expected))

    async def delete_secret(self, project: ProjectName, name: str) -> bool:
        """Remove a secret."""
        return bool(await self._call("delete_secret", project, name))

    async def secrets(self, project: ProjectName) -> tuple[SecretRecord, ...]:
        """Read a project's secrets."""
        found = [
            from_json(SecretRecord, loads(text)) for text in await self._call("secrets", project)
        ]
        return tuple(sorted(found, key=lambda secret: secret.name))

    async def secret_projects(self) -> tuple[ProjectName, ...]:
        """Read which projects have secrets."""
        return tuple(sorted(ProjectName(name) for name in await self._call("secret_projects")))
