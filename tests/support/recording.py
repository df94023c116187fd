"""Read the history of a deployment: its event stream, its store, and what its ranks wrote."""

import asyncio
import contextlib
import json
from datetime import datetime
from pathlib import Path

from tests.support.deployment import Deployment
from tests.support.history import Event, Final, History, Run

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.port import Message
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.envelope import CloudEvent, short_kind
from frenzy_shared.state.redis import RedisStore

# What is checked of a record: 10,000 jobs have 100,000 events.
_KEPT = ("state", "attempt", "placement", "clean", "owned_devices", "successor")
_SETTLE_S = 20.0  # for the relay to empty the outbox and agents to say their last


def history_of(deployment: Deployment, silent: frozenset[str] = frozenset()) -> History:
    """Wait until nothing is on its way, then read everything. ``silent``: see ``History``."""
    return asyncio.run(_read(deployment, silent))


async def _read(deployment: Deployment, silent: frozenset[str]) -> History:
    async with contextlib.AsyncExitStack() as stack:
        bus = await NatsBus.connect(deployment.bus_access, name="history")
        stack.push_async_callback(bus.close)
        store = await RedisStore.open(deployment.store_url)
        stack.push_async_callback(store.close)
        await _settled(deployment, store)
        messages = await _stream(bus, subjects.EVENTS_STREAM)
        events = [event for message in messages if (event := _event(message)) is not None]
        jobs = {e.entity.removeprefix("job:") for e in events if e.entity.startswith("job:")}
        jobs |= {submission.job for submission in deployment.submissions}
        records = {job: await store.job(job) for job in jobs}
        return History(
            submissions=tuple(deployment.submissions),
            events=tuple(events),
            runs=read_runs(deployment.records),
            silent=silent,
            final=Final(
                jobs={job: to_json(record) for job, record in records.items() if record},
                owners=(await store.cluster()).owners,
                outbox_lag=(await store.health()).outbox_lag,
                dead_letters=await bus.last_sequence(subjects.DLQ_STREAM),
                processes=tuple(str(process) for process in deployment.left_processes()),
            ),
        )


def read_runs(folder: Path) -> tuple[Run, ...]:
    """Read the first and the last line of what each rank wrote; one that a kill cut off is none."""
    runs = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text().splitlines()
        start = next(filter(None, map(_line, lines)), None)
        if start is None:
            continue
        last = next(filter(None, map(_line, reversed(lines))))
        runs.append(
            Run(
                **{k: start[k] for k in ("job", "attempt", "rank", "node", "device", "contested")},
                began_s=start["boot_s"],
                began_ms=start["wall_ms"],
                ended_s=last["boot_s"],
                ended_ms=last["wall_ms"],
                finished=last["kind"] == "stop",
            )
        )
    return tuple(runs)


def _line(text: str) -> dict | None:
    try:
        return json.loads(text)
    except ValueError:
        return None


async def _settled(deployment: Deployment, store: RedisStore) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SETTLE_S
    while loop.time() < deadline:
        free = not any((await store.cluster()).owners.values())
        if free and not (await store.health()).outbox_lag and not deployment.left_processes():
            return
        await asyncio.sleep(0.1)


async def _stream(bus: NatsBus, stream: str) -> list[Message]:
    last = await bus.last_sequence(stream)
    found: list[Message] = []
    async with contextlib.aclosing(bus.read(stream, ">", after_sequence=0)) as messages:
        async for message in messages:
            if message is not None:
                found.append(message)
            if found and found[-1].sequence >= last:
                break
    return found


def _event(message: Message) -> Event | None:
    """Read an event of a job or a node; others tell what administrators did."""
    event = CloudEvent.decode(message.payload)
    if not event.subject.startswith(("job:", "node:")):
        return None
    record = event.data["record"]
    return Event(
        sequence=message.sequence,
        id=event.id,
        entity=event.subject,
        version=int(event.id.split(":")[1]),
        type=short_kind(event.type),
        time_ms=datetime.fromisoformat(event.time).timestamp() * 1000,
        record={name: record[name] for name in _KEPT if name in record},
    )
