"""Ask the gateway for the secrets of an attempt. They pass through memory only."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from frenzy_orchestrator.adapters.preparation import Refused
from frenzy_shared.bus.port import Bus
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import DesiredAttempt, SecretsReply, SecretsRequest

log = logging.getLogger(__name__)

_TRIES: Final = 4
_PAUSE_S: Final = 1.0  # a gateway that restarts takes about so long


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """Asks for this node. ``timeout_s`` is for one answer."""

    node: str
    bus: Bus
    timeout_s: float = 3.0

    async def fetch(self, order: DesiredAttempt) -> Mapping[str, str] | Refused:
        """Return the values by environment variable; nothing is asked where nothing is needed."""
        if order.spec is None or not order.spec.secrets:
            return {}
        request = SecretsRequest(job=order.job, attempt=order.attempt).encode()
        reason = "nobody answers"
        for number in range(_TRIES):
            if number:
                await asyncio.sleep(_PAUSE_S)
            try:
                answer = await self.bus.request(
                    subjects.secrets(self.node), request, timeout_s=self.timeout_s
                )
                return _values(SecretsReply.decode(answer))
            except Unavailable as error:
                reason = error.message
                log.warning("no secrets for %s yet: %s", order.job, reason)
            except ValidationError:
                reason = "the answer is not one that this version knows"
        # Not the node's fault: no reason to give it less work.
        return Refused(StopReason.COMMUNICATION_ERROR, f"the gateway gives no secrets: {reason}")


def _values(reply: SecretsReply) -> Mapping[str, str] | Refused:
    if not reply.error:
        return reply.values
    reason = StopReason.DATA_ERROR if reply.permanent else StopReason.COMMUNICATION_ERROR
    return Refused(reason, f"secrets: {reply.error}")
