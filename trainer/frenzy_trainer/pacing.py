"""Make an emulated device slower than the machine that emulates it."""

import time


class Pacer:
    """Stretch steps so that each takes at least its own CPU time divided by ``speed``.

    CPU time of the calling thread, not wall time: a rank that waited for another, or for a busy
    machine, must not be slowed down for it too; in a gang such waits would add up without end.
    A device as fast as the host or faster (``speed >= 1``) runs at the host's speed.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self.start()

    def start(self) -> None:
        """Begin a step now."""
        self._started = time.perf_counter()
        self._cpu_started = time.thread_time()

    def finish(self) -> None:
        """Sleep for what the step begun last still has to take."""
        if self._speed >= 1:
            return
        due = (time.thread_time() - self._cpu_started) / self._speed
        remaining = due - (time.perf_counter() - self._started)
        if remaining > 0:
            time.sleep(remaining)
