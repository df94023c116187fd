"""Make an emulated device slower than the machine that emulates it."""

import time


def pace(busy_seconds: float, speed: float) -> None:
    """Sleep so that work that took ``busy_seconds`` takes ``1 / speed`` times as long.

    A device that is as fast as the host or faster (``speed >= 1``) runs at the host's speed.
    """
    if speed < 1:
        time.sleep(busy_seconds * (1 / speed - 1))
