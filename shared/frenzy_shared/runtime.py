"""Run a service: loops until a stop flag, signals, and a shutdown that always ends.

Python 3.11 can lose a task's cancellation inside client libraries (asyncio.wait_for), so stopping
is: set the flag, wait, then cancel again and again until a deadline.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from frenzy_shared.errors import FrenzyError, Unavailable

log = logging.getLogger(__name__)

Loop = Callable[[asyncio.Event], Awaitable[None]]

_GRACE_S = 5.0
_DEADLINE_S = 9.0
EXIT_MISCONFIGURED = 2


async def run_until_stopped(*loops: Loop, stop: asyncio.Event | None = None) -> None:
    """Run loops side by side until SIGTERM, SIGINT, ``stop``, or the end of any loop.

    Each loop gets the stop event and must return soon after it is set; the ones that do not are
    cancelled, and the process exits if that does not help either. The first loop's exception is
    raised after all have ended. The signals stay handled, so that a second one (Ctrl-C reaches the
    whole process group) does not cut off what closes after this.
    """
    stop = stop or asyncio.Event()
    running_loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running_loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.ensure_future(loop(stop)) for loop in loops]
    waiter = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({*tasks, waiter}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        waiter.cancel()
        await _end(set(tasks))
    failures = [task.exception() for task in tasks if not task.cancelled()]
    errors = [error for error in failures if error is not None]
    for error in errors[1:]:
        log.error("another loop failed too: %r", error, exc_info=error)
    if errors:
        raise errors[0]


async def every(
    period_s: float,
    stop: asyncio.Event,
    action: Callable[[], Awaitable[object]],
    *,
    wake: asyncio.Event | None = None,
    share: float = 1.0,
) -> None:
    """Call ``action`` every ``period_s`` seconds, and at once when ``wake`` is set.

    It takes at most ``share`` of the time: after a long call comes a rest that nothing cuts short.
    ``Unavailable`` (a server is down) is logged and tried again; other errors end the loop.
    """
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        started = loop.time()
        if wake is not None:
            wake.clear()
        try:
            await action()
        except Unavailable as error:
            log.warning("%s; trying again", error.message)
        if share < 1:
            await wait_any((loop.time() - started) * (1 / share - 1), stop)
        await wait_any(period_s, stop, *([wake] if wake is not None else []))


async def wait_any(timeout_s: float, *events: asyncio.Event) -> None:
    """Return when one of ``events`` is set or after ``timeout_s`` seconds."""
    waiters = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()


def main(run: Callable[[], Awaitable[None]]) -> None:
    """Run a service's coroutine as a process.

    A known error is one line on stderr and exit code 2 (misconfigured) or 1; anything else is a
    traceback and exit code 1.
    """

    async def start() -> None:
        await run()

    try:
        asyncio.run(start())
    except FrenzyError as error:
        hints = "".join(f"\n  try: {hint}" for hint in error.suggestions)
        sys.stderr.write(f"error: {error.message}{hints}\n")
        sys.stderr.flush()
        os._exit(EXIT_MISCONFIGURED if error.code == "misconfigured" else 1)
    except KeyboardInterrupt:
        os._exit(130)


async def _end(tasks: set[asyncio.Future[None]]) -> None:
    if not tasks:
        return
    loop = asyncio.get_running_loop()
    start = loop.time()
    _, pending = await asyncio.wait(tasks, timeout=_GRACE_S)
    while pending and loop.time() - start < _DEADLINE_S:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.2)
    if pending:
        log.error("%d tasks did not stop in %.0f s; exiting anyway", len(pending), _DEADLINE_S)
        with contextlib.suppress(Exception):
            logging.shutdown()
        os._exit(1)


async def cancel(task: "asyncio.Future[None]") -> None:
    """Cancel until it is done: Python 3.11 can lose a cancellation inside client libraries."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.5)
