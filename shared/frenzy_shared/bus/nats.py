"""The bus on NATS: JetStream for what must not be lost, core messaging for what may."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Self
from weakref import WeakSet

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoRespondersError

from frenzy_shared.bus import nats_durables
from frenzy_shared.bus.delivery import DeadLetter, outgoing_headers
from frenzy_shared.bus.nats_api import MESSAGE_NOT_FOUND, ApiError, call, refusal
from frenzy_shared.bus.nats_connection import Access, Connection, Fatal, exit_process
from frenzy_shared.bus.nats_consumer import ACK_WAIT_S, DurableConsumer
from frenzy_shared.bus.nats_core import CoreSubscription
from frenzy_shared.bus.nats_reader import follow
from frenzy_shared.bus.nats_streams import check_server_version, ensure_streams, verify_streams
from frenzy_shared.bus.port import (
    DurableState,
    Handler,
    Headers,
    Message,
    Published,
    Responder,
    Subscription,
)
from frenzy_shared.errors import PayloadTooLarge, Unavailable

_PUBLISH_TIMEOUT_S: Final = 3.0
_HEADER_FRAME_BYTES: Final = len("NATS/1.0\r\n\r\n")


class NatsBus:
    """One connection to a NATS server or cluster. Made by ``connect``."""

    def __init__(self, connection: Connection, *, replicas: int, ack_wait_s: float) -> None:
        self._connection = connection
        self._replicas = replicas
        self._ack_wait_s = ack_wait_s
        self._open: WeakSet[Subscription] = WeakSet()  # a stopped one drops out

    @classmethod
    async def connect(
        cls,
        access: Access | str,
        *,
        name: str,
        replicas: int = 1,
        timeout_s: float = 10.0,
        ack_wait_s: float = ACK_WAIT_S,
        on_fatal: Fatal = exit_process,
    ) -> Self:
        """Connect as ``name`` (``[a-z0-9-]+``: it is in the inbox prefix and in monitoring).

        ``access`` may be a bare URL that holds its secret.
        ``replicas`` is how many servers keep each stream. ``on_fatal`` is called when the
        connection can never work again: credentials revoked, a subject not permitted.

        Raises:
            Unavailable: no server answers.
            Misconfigured: it refuses the credentials, or it is too old.
        """
        connection = Connection(name, on_fatal)
        whole = Access(url=access) if isinstance(access, str) else access
        await connection.open(whole, timeout_s)
        try:
            check_server_version(connection.server_version)
        except BaseException:
            await connection.close()
            raise
        return cls(connection, replicas=replicas, ack_wait_s=ack_wait_s)

    async def publish(
        self, subject: str, payload: bytes, *, message_id: str, headers: Headers | None = None
    ) -> Published:
        """Store a message once per id."""
        client = await self._connection.ready(_PUBLISH_TIMEOUT_S)
        sent = outgoing_headers(headers, message_id=message_id)
        _check_size(client, subject, payload, sent)
        try:
            reply = await client.request(subject, payload, timeout=_PUBLISH_TIMEOUT_S, headers=sent)
        except NoRespondersError:
            raise Unavailable(f"no stream takes {subject}; run `frenzy init`") from None
        except Error as error:
            raise _unavailable(f"publishing {subject}: unknown outcome", error) from error
        answer = json.loads(reply.data)
        if "error" in answer:
            raise refusal(f"publishing {subject}", answer["error"])
        return Published(sequence=answer["seq"], duplicate=bool(answer.get("duplicate")))

    async def consume(
        self, stream: str, durable: str, handler: Handler, *, filter_subject: str
    ) -> Subscription:
        """Handle a durable's messages, one at a time in this process."""
        consumer = DurableConsumer(
            self._connection,
            stream,
            durable,
            filter_subject,
            handler=handler,
            bury=self._publish_dead_letter,
            ack_wait_s=self._ack_wait_s,
        )
        await consumer.start()
        return self._keep(consumer)

    async def read(
        self, stream: str, filter_subject: str, *, after_sequence: int
    ) -> AsyncGenerator[Message | None, None]:
        """Read stored messages, then follow."""
        messages = follow(self._connection, stream, filter_subject, after_sequence)
        async with contextlib.aclosing(messages):
            async for message in messages:
                yield message

    async def last_sequence(self, stream: str, filter_subject: str = "") -> int:
        """Return the last stored sequence of a stream, or of the messages that match."""
        if not filter_subject:
            answer = await call(self._connection, f"STREAM.INFO.{stream}")
            return int(answer["state"]["last_seq"])
        try:
            body = {"last_by_subj": filter_subject}
            answer = await call(self._connection, f"STREAM.MSG.GET.{stream}", body)
        except ApiError as error:
            if error.number == MESSAGE_NOT_FOUND:
                return 0
            raise
        return int(answer["message"]["seq"])

    async def remove(self, stream: str, sequence: int) -> bool:
        """Delete one stored message; False when there is none."""
        body = {"seq": sequence}
        try:  # deleting what is not there is no error of its own
            await call(self._connection, f"STREAM.MSG.GET.{stream}", body)
        except ApiError as error:
            if error.number == MESSAGE_NOT_FOUND:
                return False
            raise
        await call(self._connection, f"STREAM.MSG.DELETE.{stream}", body)
        return True

    async def add_durable(
        self, stream: str, durable: str, filters: Sequence[str], *, history: bool
    ) -> None:
        """Make a durable from which another client pulls."""
        await nats_durables.add_durable(self._connection, stream, durable, filters, history=history)

    async def durable_state(self, stream: str, durable: str) -> DurableState | None:
        """Return how far a durable is."""
        return await nats_durables.durable_state(self._connection, stream, durable)

    async def remove_durable(self, stream: str, durable: str) -> bool:
        """Remove a durable; False when there is none."""
        return await nats_durables.remove_durable(self._connection, stream, durable)

    async def emit(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> None:
        """Send a core message; nothing is buffered for a server that is away."""
        client = await self._connection.ready(0)
        sent = outgoing_headers(headers)
        _check_size(client, subject, payload, sent)
        try:
            await client.publish(subject, payload, headers=sent)
        except Error as error:
            raise _unavailable(f"sending {subject}", error) from error

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Receive core messages, one at a time, in order."""
        listening = CoreSubscription(self._connection, handler=handler)
        await listening.start(subject, queue)
        return self._keep(listening)

    async def request(
        self, subject: str, payload: bytes, *, timeout_s: float, headers: Headers | None = None
    ) -> bytes:
        """Ask and wait for the first answer."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        client = await self._connection.ready(timeout_s)
        left_s = max(0.01, deadline - asyncio.get_running_loop().time())
        sent = outgoing_headers(headers)
        _check_size(client, subject, payload, sent)
        try:
            reply = await client.request(subject, payload, timeout=left_s, headers=sent)
        except NoRespondersError:
            raise Unavailable(f"nobody answers {subject}") from None
        except Error as error:
            raise _unavailable(f"no answer from {subject} in {timeout_s:g} s", error) from error
        return reply.data

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:
        """Answer requests, several at a time."""

        async def respond(message: Message, raw: Msg) -> None:
            answer = await responder(message)
            if answer is not None and raw.reply:
                await raw.respond(answer)

        listening = CoreSubscription(self._connection, responder=respond)
        await listening.start(subject, queue)
        return self._keep(listening)

    async def ensure_streams(self) -> None:
        """Create the streams that do not exist."""
        await ensure_streams(self._connection, self._replicas)

    async def verify_streams(self) -> None:
        """Compare every stream with its configuration."""
        await verify_streams(self._connection, self._replicas)

    @property
    def connected(self) -> bool:
        """Tell whether the server is reachable at this moment."""
        return self._connection.connected

    async def close(self) -> None:
        """Wait for running handlers, then close."""
        await asyncio.gather(*(subscription.stop() for subscription in list(self._open)))
        await self._connection.close()

    def _keep(self, subscription: Subscription) -> Subscription:
        self._open.add(subscription)
        return subscription

    async def _publish_dead_letter(self, letter: DeadLetter) -> None:
        await self.publish(
            letter.subject, letter.payload, message_id=letter.message_id, headers=letter.headers
        )


def _check_size(client: Client, subject: str, payload: bytes, headers: Headers) -> None:
    """Refuse what the server would answer by closing the connection; headers count too."""
    size = len(payload) + sum(len(k.encode()) + len(v.encode()) + 4 for k, v in headers.items())
    if size + _HEADER_FRAME_BYTES > client.max_payload:
        raise PayloadTooLarge(
            f"a message of {size} bytes to {subject}; the bus takes at most {client.max_payload}"
        )


def _unavailable(what: str, error: Error) -> Unavailable:
    return Unavailable(f"{what}: {str(error) or type(error).__name__}")
