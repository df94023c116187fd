"""A supervised process: readiness, restarts, ending."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from frenzy.local.child import Child, ChildSpec, Exited


def spec(folder: Path, code: str, **more) -> ChildSpec:
    ready = folder / "ready"

    async def is_ready():
        return ready.exists()

    options = {"ready": is_ready, "ready_within_s": 10.0, "stop_within_s": 5.0, **more}
    return ChildSpec(
        name="child",
        argv=[sys.executable, "-c", code, str(ready)],
        environment={"PATH": "/bin"},
        folder=folder,
        log=folder / "child.log",
        **options,
    )


RUNS = "import sys, time; open(sys.argv[1], 'a').write('x'); print('up'); time.sleep(600)"


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_crash_is_repaired_and_told(tmp_path):
    told = []
    child = Child(spec(tmp_path, RUNS), lambda: told.append(child.mark))
    await child.start()
    first = child.mark
    first.send(signal.SIGKILL)
    await until(lambda: child.restarts == 1 and (tmp_path / "ready").read_text() == "xx")
    assert child.mark != first
    assert child.last_exit == -signal.SIGKILL
    assert told[-1] == child.mark
    await child.stop()
    assert not child.mark.alive


async def test_stop_during_the_pause_before_a_restart_starts_nothing(tmp_path):
    child = Child(spec(tmp_path, RUNS), lambda: None)
    await child.start()
    child.mark.send(signal.SIGKILL)
    await until(lambda: child.last_exit is not None)
    await child.stop()
    assert child.restarts == 0


async def test_sigkill_ends_what_ignores_sigterm(tmp_path):
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + RUNS
    child = Child(spec(tmp_path, code, stop_within_s=0.2), lambda: None)
    await child.start()
    await child.stop()
    assert child.last_exit == -signal.SIGKILL


async def test_a_process_that_ends_before_it_is_ready_is_an_error(tmp_path):
    child = Child(spec(tmp_path, "print('why'); raise SystemExit(3)"), lambda: None)
    with pytest.raises(Exited, match="exit code 3"):
        await child.start()
    await child.stop()
    assert (tmp_path / "child.log").read_text() == "why\n"


async def test_a_process_that_is_never_ready_is_an_error_and_can_be_stopped(tmp_path):
    code = "import time; time.sleep(600)"
    child = Child(spec(tmp_path, code, ready_within_s=0.2), lambda: None)
    with pytest.raises(TimeoutError):
        await child.start()
    await child.stop()
    assert not child.mark.alive


async def test_a_child_that_cannot_be_started_again_is_tried_until_it_can(tmp_path):
    child = Child(spec(tmp_path, RUNS), lambda: None)
    await child.start()
    (tmp_path / "child.log").unlink()
    (tmp_path / "child.log").mkdir()  # the log cannot be opened, as on a full disk
    first = child.mark
    first.send(signal.SIGKILL)
    await until(lambda: child.restarts >= 1)
    (tmp_path / "child.log").rmdir()
    await until(lambda: child.mark != first and child.mark.alive)
    await child.stop()
