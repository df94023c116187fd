"""A handler for tests of a bus."""

import asyncio

from frenzy_shared.bus.port import Message


class Inbox:
    """A handler that remembers, and fails as told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failures: list[Exception] = []
        self._changed = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._changed.set()
        if self.failures:
            raise self.failures.pop(0)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    async def wait_for(self, count: int, timeout_s: float = 20) -> None:
        async with asyncio.timeout(timeout_s):
            while len(self.messages) < count:
                self._changed.clear()
                await self._changed.wait()
