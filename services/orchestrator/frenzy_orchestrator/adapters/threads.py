"""Run a call that may never return in a thread that nothing waits for.

Inputs of a job may lie on a mount that has stopped answering, and a device's driver may hang. A
worker of the event loop's pool would be lost to it, and the process could not end: asyncio and
the interpreter join those.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")


async def in_own_thread(call: Callable[[], _T]) -> _T:
    """Return what ``call`` returns, or raise what it raises; cancelling only stops waiting."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not result.done():  # else cancelled
            outcome()

    def work() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(result.set_result, call())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcome = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name="frenzy-own", daemon=True).start()
    return await result
