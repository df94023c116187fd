"""What is measured of a living world, and how much of it grew."""

import gc
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import nats
from benchmarks.soak.world import World

from frenzy_shared.messages.subjects import STREAMS

_CONTAINERS: Final = (dict, list, set, tuple)
_OPAQUE: Final = (type, types.ModuleType, types.FunctionType, types.CodeType)


async def measure(living: World) -> dict[str, Any]:
    """Return memory of processes, objects of services, and what the servers hold."""
    ports = (living.store, living.scheduler.bus, living.clock, living.archive)
    with living.valkey.client() as client:
        keys = Counter(key.split(":")[1] for key in client.scan_iter("{frenzy}:*", count=5000))
        memory = client.info("memory")
        outbox = client.xlen("{frenzy}:outbox")
    return {
        "services' process, resident bytes": _resident_bytes("self"),
        "nats-server, resident bytes": _resident_bytes(str(living.nats.pid)),
        "store, used bytes": memory["used_memory"],
        "store, keys": sum(keys.values()),
        **{f"store, keys of {kind}": count for kind, count in sorted(keys.items()) if count > 100},
        "store, outbox entries": outbox,
        "scheduler, objects": _held(living.scheduler, ports),
        "marp, objects": _held(living.marp, ports),
        "streams": await _streams(living),
    }


def growth(looks: Sequence[dict[str, Any]], *, after_hour: float) -> dict[str, float]:
    """Return by how much the last measures are above the first ones after an hour.

    Each is the mean of half of the measures, so that one collection of garbage does not judge.
    What counts few things is left out: one more of ten is no leak. So is nats-server's memory,
    which goes by what its streams hold, up to limits of bytes and days of its own clock.
    """
    steady = [one for one in looks if one["hour"] > after_hour]
    half = len(steady) // 2
    if not half:
        return {}
    first, last = steady[:half], steady[-half:]
    names = [
        name
        for name, value in steady[0].items()
        if isinstance(value, int) and value >= 100 and not name.startswith("nats")
    ]
    return {name: _mean(last, name) / _mean(first, name) - 1 for name in names}


def _mean(measures: Sequence[dict[str, Any]], name: str) -> float:
    return sum(one.get(name, 0) for one in measures) / len(measures)


def _held(root: object, ports: Sequence[object]) -> int:
    """Count what is reachable from a service, its ports and metrics left out."""
    seen = {id(port) for port in ports}
    todo, count = [root], 0
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _OPAQUE):
            continue
        seen.add(id(value))
        count += 1
        if isinstance(value, _CONTAINERS) or type(value).__module__.startswith("frenzy"):
            todo += gc.get_referents(value)
    return count


async def _streams(living: World) -> dict[str, dict[str, int]]:
    """Return what the bus keeps, which its own limits bound: messages and bytes."""
    client = await nats.connect(living.nats.url)
    found = {}
    for stream in STREAMS:
        state = (await client.jetstream().stream_info(stream.name)).state
        found[stream.name] = {
            "messages": state.messages,
            "bytes": state.bytes,
            "most_bytes": stream.max_bytes,
        }
    await client.close()
    return found


def _resident_bytes(process: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
