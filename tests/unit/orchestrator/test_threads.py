"""A call in its own thread gives its result, and holds up nothing when it gives none."""

import asyncio
import subprocess
import sys
import threading

import pytest

from frenzy_orchestrator.adapters.threads import in_own_thread

_HUNG = """
import asyncio, threading
from frenzy_orchestrator.adapters.threads import in_own_thread

async def main():
    task = asyncio.ensure_future(in_own_thread(threading.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

asyncio.run(main())
"""


async def test_results_and_errors_come_back():
    assert await in_own_thread(lambda: 42) == 42
    with pytest.raises(FileNotFoundError):
        await in_own_thread(lambda: open("/no/such/file"))  # noqa: SIM115 - it never opens


async def test_a_result_that_comes_after_cancelling_is_dropped():
    free, done = threading.Event(), threading.Event()

    def call():
        free.wait()
        done.set()

    task = asyncio.ensure_future(in_own_thread(call))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    assert await asyncio.to_thread(done.wait, 5)
    await asyncio.sleep(0.01)  # an error in the callback would reach the loop's handler here


def test_a_process_ends_while_a_call_hangs():
    ended = subprocess.run([sys.executable, "-c", _HUNG], timeout=20, check=False)
    assert ended.returncode == 0
