"""A TCP proxy in bad weather: it delays, loses answers and resets connections, as it is told to."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST instead of FIN
_CHUNK = 65_536


@dataclass(frozen=True, kw_only=True)
class Weather:
    """``delay_s`` holds for each direction. ``lives_s`` is how long connections live, at random;
    ``lost`` the probability that an answer is lost and its connection with it.
    """

    delay_s: float = 0.0
    lives_s: tuple[float, float] | None = None
    lost: float = 0.0


FINE = Weather()


class WeatherProxy:
    """Forwards to a port on loopback, in a thread of its own. ``weather`` may change at any time."""

    def __init__(self, target_port: int) -> None:
        self.weather = FINE
        self.seen: Counter[str] = Counter()
        self._target_port = target_port
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def start(self) -> None:
        """Serve on a port of its own, ``port``."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        while len(asyncio.all_tasks()) > 1:  # connections end by themselves now
            await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            tasks = [
                asyncio.ensure_future(self._carry(reader, far_writer, answers=False)),
                asyncio.ensure_future(self._carry(far_reader, writer, answers=True)),
                asyncio.ensure_future(self._end_of_life()),
                asyncio.ensure_future(self._stop.wait()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            _reset(far_writer)
        _reset(writer)

    async def _carry(self, source, target, *, answers: bool) -> None:
        """Carry bytes one way, each as late as the weather says; end with the connection."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.ensure_future(self._deliver(queue, target))
        try:
            while data := await source.read(_CHUNK):
                if answers and random.random() < self.weather.lost:
                    self.seen["lost"] += 1
                    return
                queue.put_nowait((self._loop.time() + self.weather.delay_s, data))
            await queue.join()
        finally:
            delivering.cancel()

    async def _deliver(self, queue, target) -> None:
        while True:
            due, data = await queue.get()
            if (wait_s := due - self._loop.time()) > 0:
                self.seen["delayed"] += 1
                await asyncio.sleep(wait_s)
            target.write(data)
            await target.drain()
            queue.task_done()

    async def _end_of_life(self) -> None:
        """Return when a connection's time is over; in fine weather it never is."""
        while (span := self.weather.lives_s) is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(random.uniform(*span))
        self.seen["reset"] += 1


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
