"""Programs that follow events on the bus: ``Client.integrations`` and ``AsyncClient``'s.

Their keys are made where they run: only the public half is sent.
"""

from collections.abc import Sequence
from urllib.parse import quote

from frenzy.exchange import Call, Operation, Retry, exchange
from frenzy.transport import AsyncTransport, Transport
from frenzy_shared.messages.integrations import (
    IntegrationAccess,
    IntegrationList,
    IntegrationRequest,
    IntegrationView,
)


class Integrations:
    """For administrators of all projects."""

    def __init__(self, io: Transport, retry: Retry) -> None:
        self._io = io
        self._retry = retry

    def create(
        self,
        name: str,
        public_key: str,
        *,
        project: str = "default",
        events: Sequence[str] = (),
        history: bool = False,
    ) -> IntegrationAccess:
        """Let a program with that nkey follow a project's events ("*": all projects).

        ``events`` are kinds such as "job.failed"; none: all. ``history``: from the oldest event
        that is kept on, else from now on.

        Raises:
            InvalidSpec: naming the wrong field.
            InvalidState: the name or the key is taken.
        """
        request = IntegrationRequest(
            name=name,
            public_key=public_key,
            project=project,
            events=tuple(events),
            history=history,
        )
        return self._io.run(_create(self._retry, request))

    def list(self) -> tuple[IntegrationView, ...]:
        """Return all integrations, by name, with how far they are."""
        return self._io.run(_list(self._retry))

    def rotate(self, name: str, public_key: str) -> IntegrationAccess:
        """Give an integration another key: the old one is worthless at once, its place stays."""
        return self._io.run(_rotate(self._retry, name, public_key))

    def revoke(self, name: str) -> None:
        """Shut an integration out at once, and forget its place."""
        self._io.run(_revoke(self._retry, name))


class AsyncIntegrations:
    """``Integrations`` for asyncio: the same methods, awaited."""

    def __init__(self, io: AsyncTransport, retry: Retry) -> None:
        self._io = io
        self._retry = retry

    async def create(
        self,
        name: str,
        public_key: str,
        *,
        project: str = "default",
        events: Sequence[str] = (),
        history: bool = False,
    ) -> IntegrationAccess:
        """Let a program follow events; see ``Integrations.create``."""
        request = IntegrationRequest(
            name=name,
            public_key=public_key,
            project=project,
            events=tuple(events),
            history=history,
        )
        return await self._io.run(_create(self._retry, request))

    async def list(self) -> tuple[IntegrationView, ...]:
        """Return all integrations, by name, with how far they are."""
        return await self._io.run(_list(self._retry))

    async def rotate(self, name: str, public_key: str) -> IntegrationAccess:
        """Give an integration another key: the old one is worthless at once, its place stays."""
        return await self._io.run(_rotate(self._retry, name, public_key))

    async def revoke(self, name: str) -> None:
        """Shut an integration out at once, and forget its place."""
        await self._io.run(_revoke(self._retry, name))


def _create(retry: Retry, request: IntegrationRequest) -> Operation[IntegrationAccess]:
    call = Call(method="POST", path="/integrations", json=request.model_dump(mode="json"))
    return IntegrationAccess.decode((yield from exchange(call, retry)).body)


def _list(retry: Retry) -> Operation[tuple[IntegrationView, ...]]:
    answer = yield from exchange(Call(method="GET", path="/integrations"), retry)
    return IntegrationList.decode(answer.body).integrations


def _rotate(retry: Retry, name: str, public_key: str) -> Operation[IntegrationAccess]:
    call = Call(method="POST", path=f"{_path(name)}:rotate", json={"public_key": public_key})
    return IntegrationAccess.decode((yield from exchange(call, retry)).body)


def _revoke(retry: Retry, name: str) -> Operation[None]:
    yield from exchange(Call(method="POST", path=f"{_path(name)}:revoke"), retry)


def _path(name: str) -> str:
    return f"/integrations/{quote(name, safe='')}"
