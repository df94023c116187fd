"""The SDK's only network I/O: drive operations and streams with httpx, blocking or not."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from frenzy.exchange import Answer, Call, Lost, Operation, Outcome, Pause
from frenzy.streams import Follower, ServerEvent

T = TypeVar("T")

_CONNECT_S: Final = 5.0
_STREAM_TIMEOUT: Final = httpx.Timeout(45.0, connect=5.0)  # the server keeps alive every 15 s
_CHUNK: Final = 1 << 20
_FAILING: Final = frozenset({502, 503, 504})  # another gateway may do better


class Gateways:
    """The addresses of a server's gateways. Clients begin with any, so that all have work."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._turn = random.randrange(len(urls))  # noqa: S311 - no secret

    @property
    def url(self) -> str:
        """Return the one to ask now."""
        return self._urls[self._turn]

    def judge(self, url: str, outcome: Outcome) -> None:
        """Go on to the next one when ``url`` failed, unless somebody did before."""
        failed = not isinstance(outcome, Answer) or outcome.status in _FAILING
        if failed and url == self.url:
            self._turn = (self._turn + 1) % len(self._urls)


class Transport:
    """Blocking I/O."""

    def __init__(self, http: httpx.Client, urls: Sequence[str]) -> None:
        self._http = http
        self._gateways = Gateways(urls)

    def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its result."""
        try:
            step = next(operation)
            while True:
                step = operation.send(self._perform(step))
        except StopIteration as done:
            result: T = done.value
            return result

    def follow(self, follower: Follower) -> Iterator[ServerEvent]:
        """Yield a stream's events, reconnecting as the follower says."""
        while not follower.ended:
            outcome: Outcome = Lost(reason="the stream broke off")
            url = self._gateways.url
            arguments = _arguments(url, follower.next_call(), _STREAM_TIMEOUT)
            try:
                with self._http.stream(**arguments) as got:
                    if got.status_code == httpx.codes.OK:
                        for chunk in got.iter_bytes():
                            yield from follower.feed(chunk)
                    else:
                        outcome = _answer(got, got.read())
            except httpx.TransportError as error:
                outcome = _lost(error)
            if not follower.ended:
                self._gateways.judge(url, outcome)
                time.sleep(follower.broke(outcome))

    def _perform(self, step: Call | Pause) -> Outcome | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        url = self._gateways.url
        outcome = self._send(url, step)
        self._gateways.judge(url, outcome)
        return outcome

    def _send(self, url: str, call: Call) -> Outcome:
        arguments = _arguments(url, call, _timeout(call))
        try:
            if call.file is None:
                got = self._http.request(**arguments)
            else:
                with call.file.open("rb") as file:
                    got = self._http.request(**arguments, content=file)
        except httpx.TransportError as error:
            return _lost(error)
        return _answer(got, got.content)


class AsyncTransport:
    """Asynchronous I/O."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str]) -> None:
        self._http = http
        self._gateways = Gateways(urls)

    async def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its result."""
        try:
            step = next(operation)
            while True:
                step = operation.send(await self._perform(step))
        except StopIteration as done:
            result: T = done.value
            return result

    async def follow(self, follower: Follower) -> AsyncIterator[ServerEvent]:
        """Yield a stream's events, reconnecting as the follower says."""
        while not follower.ended:
            outcome: Outcome = Lost(reason="the stream broke off")
            url = self._gateways.url
            arguments = _arguments(url, follower.next_call(), _STREAM_TIMEOUT)
            try:
                async with self._http.stream(**arguments) as got:
                    if got.status_code == httpx.codes.OK:
                        async for chunk in got.aiter_bytes():
                            for event in follower.feed(chunk):
                                yield event
                    else:
                        outcome = _answer(got, await got.aread())
            except httpx.TransportError as error:
                outcome = _lost(error)
            if not follower.ended:
                self._gateways.judge(url, outcome)
                await asyncio.sleep(follower.broke(outcome))

    async def _perform(self, step: Call | Pause) -> Outcome | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        url = self._gateways.url
        outcome = await self._send(url, step)
        self._gateways.judge(url, outcome)
        return outcome

    async def _send(self, url: str, call: Call) -> Outcome:
        arguments = _arguments(url, call, _timeout(call))
        try:
            if call.file is None:
                got = await self._http.request(**arguments)
            else:
                arguments["headers"]["Content-Length"] = str(call.file.stat().st_size)
                async with aclosing(_chunks(call.file)) as chunks:
                    got = await self._http.request(**arguments, content=chunks)
        except httpx.TransportError as error:
            return _lost(error)
        return _answer(got, got.content)


async def _chunks(path: Path) -> AsyncGenerator[bytes, None]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


def _arguments(url: str, call: Call, timeout: httpx.Timeout) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "method": call.method,
        "url": f"{url}{call.root}{call.path}",
        "params": list(call.query),
        "headers": dict(call.headers),
        "timeout": timeout,
    }
    if call.json is not None:
        arguments["json"] = call.json
    if call.text is not None:
        arguments["content"] = call.text.encode()
        arguments["headers"]["Content-Type"] = "text/plain; charset=utf-8"
    return arguments


def _timeout(call: Call) -> httpx.Timeout:
    return httpx.Timeout(call.patience_s, connect=_CONNECT_S)


def _answer(got: httpx.Response, body: bytes) -> Answer:
    return Answer(status=got.status_code, headers=got.headers, body=body)


def _lost(error: httpx.TransportError) -> Lost:
    request = error.request
    where = f"{request.url.scheme}://{request.url.netloc.decode()}"
    return Lost(reason=f"{where}: {error or type(error).__name__}")
