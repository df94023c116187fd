"""Stop the training of this machine's agents so that it can go on later: `frenzy down`.

Every attempt's shim is asked as its agent would ask it: ``stop.json`` says why and how long to
wait, SIGTERM makes it look. Ranks save a checkpoint and end; the shim writes ``exit.json`` when
nothing is left; the agent reports it, now or after its next start, and the scheduler queues the job
again with the reason Drained. The scheduler is stopped before, so that it places nothing anew.
"""

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from frenzy.local.files import read_json, write_json
from frenzy.local.processes import ProcessMark
from frenzy_orchestrator.shim.launch import EXIT, RUN, STOP
from frenzy_shared.domain.job import StopReason

_POLL_S: Final = 0.1
_KILL_S: Final = 10.0  # after the grace the shim kills; it needs a moment to see the end


async def drain(nodes: Iterable[Path], grace_s: float) -> list[str]:
    """Stop all attempts below the nodes' folders; return those that did not end."""
    waiting = {
        folder: shim
        for node in nodes
        for folder in sorted((node / "attempts").glob("*"))
        if (shim := _living_shim(folder)) is not None
    }
    for folder, shim in waiting.items():
        write_json(folder / STOP, {"grace_s": grace_s, "reason": StopReason.DRAINED.value})
        shim.send(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s + _KILL_S
    while waiting and loop.time() < deadline:
        await asyncio.sleep(_POLL_S)
        waiting = {f: shim for f, shim in waiting.items() if shim.alive}
    return [folder.name for folder in waiting]


def attempts_alive(nodes: Iterable[Path]) -> list[str]:
    """Name the attempts (``<job>.<attempt>``) whose ranks run now."""
    folders = (folder for node in nodes for folder in sorted((node / "attempts").glob("*")))
    return [folder.name for folder in folders if _living_shim(folder) is not None]


def _living_shim(folder: Path) -> ProcessMark | None:
    """Return the shim that has not said yet that nothing is left."""
    run = read_json(folder / RUN)
    if run is None or (folder / EXIT).exists():
        return None
    mark = ProcessMark(pid=run["shim"], start_ticks=run["shim_start"], boot_id=run["boot_id"])
    return mark if mark.alive else None
