"""Starting and stopping a supervisor from another process, at awkward moments."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from frenzy.local import control
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.processes import ProcessMark
from frenzy.local.status import ChildStatus, Phase, Status, held
from frenzy.local.supervisor import Supervisor, _last_words
from frenzy_shared.errors import Unavailable

# Holds the lock as a supervisor does, and says who it is only after a while.
LATE = """
import os, sys, time
from pathlib import Path
from frenzy.local.layout import Layout
from frenzy.local.processes import ProcessMark
from frenzy.local.status import Phase, Status, hold
layout = Layout(Path(sys.argv[1]))
with hold(layout.lock):
    time.sleep(0.5)
    Status(phase=Phase.STARTING, detail="", url="", supervisor=ProcessMark.of(os.getpid()),
           children=()).write(layout.status)
    time.sleep(600)
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1.0), sys.exit(0)))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "root")
    layout.create()
    return layout


@pytest.fixture
def python():
    running = []

    def start(*arguments, **options):
        process = subprocess.Popen([sys.executable, "-c", *arguments], **options)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def starting(supervisor=None, children=(), phase=Phase.STARTING):
    return Status(phase=phase, detail="", url="", supervisor=supervisor, children=children)


def nothing(_step):
    """Tell nobody."""


def test_stop_signals_a_supervisor_that_says_late_who_it_is(layout, python):
    starting().write(layout.status)
    process = python(LATE, str(layout.root))
    while not held(layout.lock):
        assert process.poll() is None
        time.sleep(0.01)
    begun = time.monotonic()
    assert control.stop(layout, nothing)
    assert time.monotonic() - begun < 10
    assert process.wait(5) == -signal.SIGTERM


def test_stop_waits_for_an_up_without_a_supervisor_yet(layout):
    steps = []
    with control.exclusive(layout) as ours:
        assert ours

        def tell(step):
            steps.append(step)
            if len(steps) == 3:  # as the new supervisor does
                starting(ProcessMark.of(os.getpid())).write(layout.status)

        assert not control.stop(layout, tell)
    assert len(steps) == 3
    assert "just begun" in steps[0]


def test_a_supervisor_that_ended_is_told_with_its_code_and_leaves_nothing(layout, python):
    left = python("import time; time.sleep(600)")
    child = ChildStatus(name="nats", mark=ProcessMark.of(left.pid), restarts=0, last_exit=None)
    starting(children=(child,)).write(layout.status)
    supervisor = python("raise SystemExit(3)")
    with pytest.raises(control.StartFailed, match="ended with exit code 3") as caught:
        control.wait_ready(layout, nothing, supervisor)
    assert str(layout.log("supervisor")) in caught.value.suggestions[0]
    assert left.wait(5) == -signal.SIGTERM


def test_why_it_failed_counts_more_than_that_it_ended(layout, python):
    supervisor = python("raise SystemExit(1)")
    supervisor.wait()
    Status(phase=Phase.FAILED, detail="why", url="", supervisor=None, children=()).write(
        layout.status
    )
    with pytest.raises(control.StartFailed, match="why"):
        control.wait_ready(layout, nothing, supervisor)


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.STOPPED])
def test_being_stopped_while_starting_is_told(layout, python, phase):
    starting(phase=phase).write(layout.status)
    with pytest.raises(Unavailable, match="stopped by `frenzy down`"):
        control.wait_ready(layout, nothing, python("import time; time.sleep(600)"))


def test_an_up_that_waits_for_anothers_supervisor_notices_its_end(layout):
    starting().write(layout.status)
    with pytest.raises(control.StartFailed, match="the supervisor ended"):
        control.wait_ready(layout, nothing)


async def test_a_supervisor_says_who_it_is_before_it_ends_what_was_left(layout, python):
    left = python(STUBBORN, stdout=subprocess.PIPE)
    left.stdout.readline()
    child = ChildStatus(name="nats", mark=ProcessMark.of(left.pid), restarts=0, last_exit=None)
    starting(children=(child,)).write(layout.status)
    supervisor = Supervisor(layout, Options(), nothing)
    ending = asyncio.create_task(supervisor._end_stale_children())
    await asyncio.sleep(0.3)  # the loop goes on meanwhile
    said = Status.read(layout.status)
    assert not ending.done()
    assert said.supervisor == ProcessMark.of(os.getpid())
    assert said.children == (child,)  # who is killed now leaves them to the next
    await ending
    assert left.wait(5) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("error: why\n  try: a hint\n  try: another\n", "error: why"),
        ("error: of an earlier life\n  try: it\nlast\n", "last"),
        ("", "it wrote nothing"),
    ],
)
def test_the_words_of_a_log_that_say_why(tmp_path, text, said):
    log = tmp_path / "child.log"
    log.write_text(text)
    assert _last_words(log) == said
