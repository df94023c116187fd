"""Secrets that jobs may use: ``Client.secrets`` and ``AsyncClient.secrets``.

Values are written and never read back: a job names the secret, and its ranks get the value.
"""

from frenzy import operations
from frenzy.exchange import Retry
from frenzy.transport import AsyncTransport, Transport
from frenzy_shared.messages.secrets import SecretView


class Secrets:
    """Secrets of projects."""

    def __init__(self, io: Transport, retry: Retry) -> None:
        self._io = io
        self._retry = retry

    def set(self, name: str, value: str, *, project: str = "default") -> SecretView:
        """Keep a value under a name; one of the same name is replaced."""
        return self._io.run(operations.set_secret(self._retry, project, name, value))

    def list(self, *, project: str = "default") -> tuple[SecretView, ...]:
        """Return a project's secrets by name, without their values."""
        return self._io.run(operations.secrets(self._retry, project))

    def delete(self, name: str, *, project: str = "default") -> None:
        """Remove a secret; jobs that start later and name it fail."""
        self._io.run(operations.delete_secret(self._retry, project, name))


class AsyncSecrets:
    """``Secrets`` for asyncio: the same methods, awaited."""

    def __init__(self, io: AsyncTransport, retry: Retry) -> None:
        self._io = io
        self._retry = retry

    async def set(self, name: str, value: str, *, project: str = "default") -> SecretView:
        """Keep a value under a name; one of the same name is replaced."""
        return await self._io.run(operations.set_secret(self._retry, project, name, value))

    async def list(self, *, project: str = "default") -> tuple[SecretView, ...]:
        """Return a project's secrets by name, without their values."""
        return await self._io.run(operations.secrets(self._retry, project))

    async def delete(self, name: str, *, project: str = "default") -> None:
        """Remove a secret; jobs that start later and name it fail."""
        await self._io.run(operations.delete_secret(self._retry, project, name))
