"""One supervised process: started, restarted when it dies, ended in order."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frenzy.local.processes import ProcessMark

log = logging.getLogger(__name__)

_BACKOFF_FIRST_S: Final = 0.2
_BACKOFF_LAST_S: Final = 10.0
_SETTLED_S: Final = 30.0  # ran for so long: the next crash starts the backoff anew
_KILL_S: Final = 5.0
_POLL_S: Final = 0.05

Probe = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How to run a process, and how to tell that it is ready. ``log`` gets both outputs."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)  # holds secrets
    folder: Path
    log: Path
    ready: Probe
    ready_within_s: float = 60.0
    stop_within_s: float = 15.0


class Exited(Exception):
    """A process ended by itself before it was ready."""


class Child:
    """A process that is kept alive from ``start`` to ``stop``. ``changed`` is told of each new pid.

    Children are sessions of their own, so that a terminal's Ctrl-C reaches only the supervisor,
    which stops them in order.
    """

    def __init__(self, spec: ChildSpec, changed: Callable[[], None]) -> None:
        self.spec = spec
        self.restarts = 0
        self.mark: ProcessMark | None = None
        self.last_exit: int | None = None
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            Exited: it ended instead; the log says why.
            TimeoutError: it is not ready in time.
        """
        process = await self._spawn()
        async with asyncio.timeout(self.spec.ready_within_s):
            while not await self.spec.ready():
                if process.returncode is not None:
                    raise Exited(f"{self.spec.name} ended with exit code {process.returncode}")
                await asyncio.sleep(_POLL_S)
        self._keeper = asyncio.create_task(self._keep(process), name=self.spec.name)

    async def stop(self) -> None:
        """End the process: SIGTERM, and SIGKILL when it takes too long."""
        self._stopping.set()
        await self._end()
        if self._keeper is not None:
            await self._keeper

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        backoff_s, loop = _BACKOFF_FIRST_S, asyncio.get_running_loop()
        while True:
            started = loop.time()
            self.last_exit = await process.wait()
            if self._stopping.is_set():
                return
            log.warning("%s ended with exit code %d", self.spec.name, self.last_exit)
            self._changed()
            if loop.time() - started > _SETTLED_S:
                backoff_s = _BACKOFF_FIRST_S
            while (restarted := await self._restart(backoff_s)) is None:
                if self._stopping.is_set():
                    return
                backoff_s = min(_BACKOFF_LAST_S, backoff_s * 2)
            process = restarted
            backoff_s = min(_BACKOFF_LAST_S, backoff_s * 2)

    async def _restart(self, backoff_s: float) -> asyncio.subprocess.Process | None:
        """Wait and start again; ``None`` when told to stop meanwhile, or when it cannot start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(backoff_s):
                await self._stopping.wait()
                return None
        self.restarts += 1
        try:
            return await self._spawn()
        except OSError as error:  # a full disk, no memory: try again later
            log.warning("cannot start %s: %s", self.spec.name, error)
            return None

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self.spec.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.spec.argv,
                env=dict(self.spec.environment),
                cwd=self.spec.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.mark = ProcessMark.of(self._process.pid)
        self._changed()
        return self._process

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        for number, patience_s in (
            (signal.SIGTERM, self.spec.stop_within_s),
            (signal.SIGKILL, _KILL_S),
        ):
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await process.wait()
                    return
