"""Secrets of projects as the store keeps them: sealed. Who has no key can read nothing of them."""

from dataclasses import dataclass, field
from typing import Protocol

from frenzy_shared.domain.ids import ProjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRecord:
    """One secret. ``sealed`` is the value under a key that the store does not have."""

    project: ProjectName
    name: str
    sealed: str = field(repr=False)
    updated_ms: int


class SecretStore(Protocol):
    """The part of the store that keeps secrets. Raises ``Unavailable`` as the rest does."""

    async def put_secret(
        self, secret: SecretRecord, *, replacing: SecretRecord | None = None
    ) -> bool:
        """Store a secret; True when it is stored.

        With ``replacing`` it takes the place of that very record only, if it is still there.
        """
        ...

    async def delete_secret(self, project: ProjectName, name: str) -> bool:
        """Remove a secret; False when there is none."""
        ...

    async def secrets(self, project: ProjectName) -> tuple[SecretRecord, ...]:
        """Read a project's secrets, by name."""
        ...

    async def secret_projects(self) -> tuple[ProjectName, ...]:
        """Read which projects have secrets, by name."""
        ...
