"""Give a node the secrets of what it is about to start, and only of that.

The bus lets a node ask under its own name only; the store says what runs where.
"""

import logging
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from frenzy_gateway.sealed import CannotOpen, Seal, opened
from frenzy_shared.bus.port import Message
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages.v1 import SecretsReply, SecretsRequest
from frenzy_shared.state.port import StateStore
from frenzy_shared.units import KIB, format_bytes

log = logging.getLogger(__name__)

QUEUE: Final = "gateway"  # one of the replicas answers
_PLACED: Final = frozenset({JobState.RESERVED, JobState.STARTING, JobState.RUNNING})
_MOST_BYTES: Final = 768 * KIB  # of one answer: below what a message of the bus may have


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretDelivery:
    """Answers nodes."""

    state: StateStore
    seal: Seal

    async def answer(self, message: Message) -> bytes | None:
        """Answer one node; while the store is away nobody does, and the node asks again."""
        node = NodeId(message.subject.rpartition(".")[2])
        try:
            request = SecretsRequest.decode(message.payload)
        except ValidationError:
            log.warning("node %s asked for secrets in a way that is not known", node)
            return SecretsReply(error="not a question about secrets", permanent=True).encode()
        try:
            reply = await self._reply(node, request)
        except Unavailable as error:
            log.warning("node %s gets no secrets for job %s: %s", node, request.job, error.message)
            return None
        what = f"secrets of job {request.job} attempt {request.attempt}"
        if reply.error:
            log.warning("node %s is refused %s: %s", node, what, reply.error)
        else:
            log.info("node %s got %s: %s", node, what, ", ".join(reply.values) or "none")
        return reply.encode()

    async def _reply(self, node: NodeId, request: SecretsRequest) -> SecretsReply:
        record = await self.state.job(JobId(request.job))
        if record is None or not _runs_on(record, request.attempt, node):
            return SecretsReply(error="this attempt is not to run on this node now")
        spec = await self.state.spec(record.id) or {}
        wanted: dict[str, str] = spec.get("secrets", {})
        kept = {secret.name: secret for secret in await self.state.secrets(record.project)}
        missing = sorted(set(wanted.values()) - set(kept))
        if missing:
            return _never(f"project {record.project} has no secret {missing[0]!r} any more")
        try:
            values = {variable: opened(self.seal, kept[name]) for variable, name in wanted.items()}
        except CannotOpen as error:
            return _never(str(error))
        reply = SecretsReply(values=values)
        if len(reply.encode()) > _MOST_BYTES:
            return _never(f"the job's secrets take more than {format_bytes(_MOST_BYTES)} together")
        return reply


def _runs_on(record: JobRecord, attempt: int, node: NodeId) -> bool:
    return (
        record.attempt == attempt
        and record.state in _PLACED
        and record.placement is not None
        and node in record.placement.nodes
    )


def _never(error: str) -> SecretsReply:
    return SecretsReply(error=error, permanent=True)
