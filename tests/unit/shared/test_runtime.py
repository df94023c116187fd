"""Loops that stop when told, and processes that always end."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from frenzy_shared import runtime
from frenzy_shared.errors import Unavailable
from frenzy_shared.runtime import every, run_until_stopped, wait_any


async def until_stopped(stop: asyncio.Event) -> None:
    await stop.wait()


async def test_loops_run_until_the_flag_is_set() -> None:
    stop, ended = asyncio.Event(), []

    async def loop(stop: asyncio.Event) -> None:
        await stop.wait()
        ended.append(1)

    asyncio.get_running_loop().call_later(0.01, stop.set)
    await run_until_stopped(loop, loop, stop=stop)
    assert ended == [1, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_sets_the_flag_and_a_second_one_is_harmless(number: signal.Signals) -> None:
    asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)
    await run_until_stopped(until_stopped)
    os.kill(os.getpid(), number)
    await asyncio.sleep(0.01)


async def test_the_first_failure_stops_the_others_and_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = []

    async def failing(stop: asyncio.Event) -> None:
        raise Unavailable("first")

    async def other(stop: asyncio.Event) -> None:
        await stop.wait()
        ended.append(1)
        raise ValueError("second")

    with pytest.raises(Unavailable, match="first"):
        await run_until_stopped(failing, other)
    assert ended == [1]
    assert "second" in caplog.text


async def test_the_end_of_one_loop_ends_all() -> None:
    async def short(stop: asyncio.Event) -> None:
        return

    await run_until_stopped(short, until_stopped)


async def test_no_loops_wait_for_the_flag() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, stop.set)
    await run_until_stopped(stop=stop)


async def test_a_swallowed_cancel_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client libraries lose cancels on Python 3.11."""
    monkeypatch.setattr(runtime, "_GRACE_S", 0.05)
    swallowed = []

    async def stubborn(stop: asyncio.Event) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
                if len(swallowed) == 3:
                    raise

    stop = asyncio.Event()
    stop.set()
    await run_until_stopped(stubborn, stop=stop)
    assert len(swallowed) == 3


def run_process(body: str, *, stop_after_s: float | None = None) -> tuple[int, str, float]:
    """Run ``async def run()`` as a service's process; return exit code, stderr, seconds."""
    program = "import asyncio, time\nfrom frenzy_shared import runtime, errors\n" + textwrap.dedent(
        body
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program + "\nruntime.main(run)"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if stop_after_s is not None:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
    start = time.monotonic()
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors, time.monotonic() - start


def test_a_loop_that_never_stops_is_left_behind() -> None:
    code, errors, seconds = run_process(
        """
        runtime._GRACE_S, runtime._DEADLINE_S = 0.2, 0.6

        async def stubborn(stop):
            print("up", flush=True)
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass

        async def run():
            await runtime.run_until_stopped(stubborn)
        """,
        stop_after_s=0,
    )
    assert (code, seconds < 5) == (1, True)
    assert "did not stop" in errors


def test_a_service_that_is_told_to_stop_exits_0() -> None:
    code, errors, _ = run_process(
        """
        async def loop(stop):
            print("up", flush=True)
            await stop.wait()

        async def run():
            await runtime.run_until_stopped(loop)
        """,
        stop_after_s=0,
    )
    assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ('errors.Misconfigured("FRENZY_X is wrong", suggestions=("set it",))', 2),
        ('errors.Unavailable("FRENZY_X is wrong", suggestions=("set it",))', 1),
    ],
)
def test_a_known_error_is_a_line_without_traceback(error: str, code: int) -> None:
    found, errors, _ = run_process(f"async def run():\n    raise {error}")
    assert (found, errors) == (code, "error: FRENZY_X is wrong\n  try: set it\n")


def test_an_unknown_error_has_a_traceback() -> None:
    code, errors, _ = run_process("async def run():\n    raise ValueError('bug')")
    assert code == 1
    assert "Traceback" in errors
    assert "ValueError: bug" in errors


# -- every ------------------------------------------------------------------------------------


async def test_every_period_and_at_once_when_woken() -> None:
    stop, wake, times = asyncio.Event(), asyncio.Event(), []

    async def action() -> None:
        times.append(1)
        if len(times) < 3:
            wake.set()
        else:
            stop.set()

    start = time.monotonic()
    await every(60, stop, action, wake=wake)
    assert len(times) == 3
    assert time.monotonic() - start < 5


async def test_after_a_long_call_comes_a_rest_that_a_wake_does_not_cut_short() -> None:
    stop, wake, times = asyncio.Event(), asyncio.Event(), []

    async def action() -> None:
        times.append(time.monotonic())
        wake.set()
        await asyncio.sleep(0.05)
        if len(times) == 2:
            stop.set()

    await every(60, stop, action, wake=wake, share=0.25)
    assert 0.2 <= times[1] - times[0] < 5


async def test_a_wake_during_the_action_is_not_lost() -> None:
    stop, wake, times = asyncio.Event(), asyncio.Event(), []

    async def action() -> None:
        times.append(1)
        asyncio.get_running_loop().call_soon(wake.set)
        await asyncio.sleep(0.01)
        if len(times) == 2:
            stop.set()

    async with asyncio.timeout(5):
        await every(60, stop, action, wake=wake)
    assert len(times) == 2


async def test_unavailable_is_tried_again_and_other_errors_end_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, calls = asyncio.Event(), []

    async def action() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Unavailable("the store is away")
        raise ValueError("bug")

    with pytest.raises(ValueError, match="bug"):
        await every(0.001, stop, action)
    assert len(calls) == 2
    assert "the store is away; trying again" in caplog.text


async def test_wait_any_leaves_no_tasks() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    await wait_any(0.01, first, second)
    second.set()
    await wait_any(60, first, second)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
