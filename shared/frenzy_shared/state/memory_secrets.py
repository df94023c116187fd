"""The secrets' part of the store in memory: ``secrets.lua`` in Python."""

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.state.secrets import SecretRecord


class MemorySecrets:
    """Mixed into ``MemoryStore``."""

    def __init__(self) -> None:
        self._secrets: dict[tuple[ProjectName, str], SecretRecord] = {}

    async def put_secret(
        self, secret: SecretRecord, *, replacing: SecretRecord | None = None
    ) -> bool:
        """Store a secret."""
        key = (secret.project, secret.name)
        if replacing is not None and self._secrets.get(key) != replacing:
            return False
        self._secrets[key] = secret
        return True

    async def delete_secret(self, project: ProjectName, name: str) -> bool:
        """Remove a secret."""
        return self._secrets.pop((project, name), None) is not None

    async def secrets(self, project: ProjectName) -> tuple[SecretRecord, ...]:
        """Read a project's secrets."""
        return tuple(
            secret for (owner, _), secret in sorted(self._secrets.items()) if owner == project
        )

    async def secret_projects(self) -> tuple[ProjectName, ...]:
        """Read which projects have secrets."""
        return tuple(sorted({project for project, _ in self._secrets}))
