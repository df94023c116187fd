"""A NATS bus on the clean session server, a plain client beside it, and small handlers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import nats
import nats.js.api
import pytest

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.port import Message
from frenzy_shared.messages import subjects

SUBJECT = subjects.job_event("p", "submitted", "j1")
EVENTS = subjects.EVENTS_STREAM


@pytest.fixture
async def raw(nats_url: str) -> AsyncIterator[nats.NATS]:
    """A plain client on the clean session server."""
    client = await nats.connect(nats_url)
    yield client
    await client.close()


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    opened = await NatsBus.connect(nats_url, name="test", ack_wait_s=0.6)
    await opened.ensure_streams()
    yield opened
    await opened.close()


async def ignore(_: Message) -> None:
    return None


def append_to(messages: list[Message]) -> Any:
    async def handler(message: Message) -> None:
        messages.append(message)

    return handler


async def until(true: Any, timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.01)
