"""A crash point kills exactly who is told to die, and nobody otherwise."""

import subprocess
import sys

PROGRAM = """
from frenzy_shared import crashpoints
try:
    crashpoints.reach("relay.after-publish")
finally:
    print("alive")
"""


def run(value=None):
    environment = {} if value is None else {"FRENZY_CRASHPOINT": str(value)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout


def test_nothing_happens_without_the_variable():
    assert run() == (0, "alive\n")


def test_a_named_point_kills_every_time_and_runs_no_handler():
    assert run("relay.after-publish") == (137, "")
    assert run("relay.after-publish") == (137, "")
    assert run("relay.after-publish-too") == (0, "alive\n")


def test_a_file_in_a_folder_kills_once(tmp_path):
    (tmp_path / "relay.after-publish").touch()
    (tmp_path / "other").touch()
    assert run(tmp_path) == (137, "")
    assert run(tmp_path) == (0, "alive\n")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_folder_that_is_not_there_kills_nobody(tmp_path):
    assert run(tmp_path / "no" / "folder") == (0, "alive\n")
