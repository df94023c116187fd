"""A wall clock that a test can move: imported by Python itself where this folder is in PYTHONPATH.

``TEST_CLOCK`` names a file with the seconds to add; it may change while the process runs. Only the
wall clock moves: CLOCK_BOOTTIME and CLOCK_MONOTONIC do not jump on real machines either.
"""

import os
import time

_FILE = os.environ["TEST_CLOCK"]
_time, _time_ns = time.time, time.time_ns


def _offset_s() -> int:
    with open(_FILE, encoding="ascii") as file:
        return int(file.read())


time.time = lambda: _time() + _offset_s()
time.time_ns = lambda: _time_ns() + _offset_s() * 1_000_000_000
