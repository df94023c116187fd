"""A TCP proxy that loses replies: the request arrives, the connection dies before the answer."""

import asyncio
import contextlib


class LossyProxy:
    """Forwards to a port on loopback. ``lose`` names what the next lost request must contain."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._lose: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.lost = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def lose(self, marker: bytes, times: int = 1) -> None:
        self._lose += [marker] * times

    async def __aenter__(self) -> "LossyProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()  # ends the tasks: a cancelled one makes Python 3.11 complain
        await asyncio.gather(*self._tasks)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        ends = {writer, up_writer}
        self._writers |= ends
        try:
            with contextlib.suppress(ConnectionError):
                await self._forward(reader, writer, up_reader, up_writer)
        finally:
            self._writers -= ends
            for end in ends:
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        """Forward both ways until an end closes, or a request to lose has been answered."""
        back = asyncio.ensure_future(_copy(up_reader, writer))
        try:
            while data := await reader.read(65536):
                lost = bool(self._lose) and self._lose[0] in data
                if lost:
                    back.cancel()
                    await asyncio.gather(back, return_exceptions=True)
                up_writer.write(data)
                await up_writer.drain()
                if lost:
                    self._lose.pop(0)
                    self.lost += 1
                    await up_reader.read(65536)  # the server has answered: it has run
                    return
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
