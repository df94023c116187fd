"""Messages that a service gave up: look at them, send them again, throw them away."""

import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from frenzy_gateway.callers import Caller
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.clock import IdSource
from frenzy_shared.errors import InvalidState, NotFound
from frenzy_shared.messages.http import DeadLetterList, DeadLetterView
from frenzy_shared.messages.subjects import DLQ_STREAM, ROOT
from frenzy_shared.times import moment

log = logging.getLogger(__name__)

_ALL: Final = f"{ROOT}.dlq.>"
_EXCERPT: Final = 200
_OWN: Final = "frenzy-"  # headers that say why a letter is dead
_SERVER: Final = "nats-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """The dead-letter stream. A letter's id is its number there."""

    bus: Bus
    ids: IdSource

    async def list(self, *, after: int, limit: int) -> DeadLetterList:
        """Show letters, oldest first, from the one after ``after`` on."""
        letters: list[DeadLetterView] = []
        async with contextlib.aclosing(self._read(after)) as messages:
            async for message in messages:
                if len(letters) == limit:
                    return DeadLetterList(letters=tuple(letters), next_after=letters[-1].id)
                letters.append(_view(message))
        return DeadLetterList(letters=tuple(letters))

    async def replay(self, caller: Caller, number: int) -> DeadLetterView:
        """Publish a letter's message where it came from, as a new one, and remove the letter.

        Every reader of that stream gets it once more; all of Frenzy's take repetitions.

        Raises:
            NotFound: there is no such letter.
            InvalidState: the letter has not got the message.
        """
        message = await self._letter(number)
        subject = message.headers.get("Frenzy-Subject", "")
        if not subject or not message.payload:
            raise InvalidState(
                f"dead letter {number} was too large to keep its message",
                suggestions=("read it from its stream, by the number that the letter names",),
            )
        headers = {
            name: value
            for name, value in message.headers.items()
            if not name.lower().startswith((_OWN, _SERVER))
        }
        message_id = f"replay:{number}:{self.ids.new_id()}"
        await self.bus.publish(subject, message.payload, message_id=message_id, headers=headers)
        await self.bus.remove(DLQ_STREAM, number)
        log.warning("%s sent dead letter %d to %s again", caller.name, number, subject)
        return _view(message)

    async def drop(self, caller: Caller, number: int) -> DeadLetterView:
        """Throw a letter away; ``NotFound`` when there is none."""
        message = await self._letter(number)
        await self.bus.remove(DLQ_STREAM, number)
        log.warning("%s dropped dead letter %d", caller.name, number)
        return _view(message)

    async def _letter(self, number: int) -> Message:
        async with contextlib.aclosing(self._read(number - 1)) as messages:
            async for message in messages:
                if message.sequence == number:
                    return message
                break
        raise NotFound(f"no dead letter {number}", suggestions=("see: frenzy admin dlq list",))

    async def _read(self, after: int) -> AsyncGenerator[Message, None]:
        """Yield what is stored now; the newest may be gone, so a pause is the end too."""
        last = await self.bus.last_sequence(DLQ_STREAM)
        if after >= last:
            return
        async with contextlib.aclosing(
            self.bus.read(DLQ_STREAM, _ALL, after_sequence=after)
        ) as messages:
            async for message in messages:
                if message is None:
                    return
                yield message
                if message.sequence >= last:
                    return


def _view(message: Message) -> DeadLetterView:
    headers = message.headers
    text = message.payload[:_EXCERPT].decode("utf-8", "replace")
    return DeadLetterView(
        id=message.sequence,
        time=moment(message.time_ms),
        subject=headers.get("Frenzy-Subject", ""),
        stream=headers.get("Frenzy-Stream", ""),
        sequence=_number(headers.get("Frenzy-Sequence", "")),
        consumer=headers.get("Frenzy-Consumer", ""),
        deliveries=_number(headers.get("Frenzy-Deliveries", "")),
        reason=headers.get("Frenzy-Reason", ""),
        size_bytes=len(message.payload),
        excerpt="".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
