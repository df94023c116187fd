"""Rules of delivery that hold on every bus: retries, dead letters, subject matching, tracing."""

from dataclasses import dataclass
from typing import Final

from frenzy_shared.bus.port import Headers, Message
from frenzy_shared.messages import subjects
from frenzy_shared.telemetry import traceparent

MAX_DELIVERIES: Final = 10
MAX_PAYLOAD_BYTES: Final = 1024**2
MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"

_DELAYS_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)  # ~100 s until the dead letter
_SERVER_HEADERS: Final = "nats-"
_REASON_LIMIT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that one durable gave up, ready to publish to the dead-letter stream."""

    subject: str
    payload: bytes
    message_id: str
    headers: Headers


def redelivery_delay_s(deliveries: int) -> float:
    """Return how long to wait after the ``deliveries``-th failed delivery (from 1)."""
    return _DELAYS_S[min(deliveries, len(_DELAYS_S)) - 1]


def dead_letter(message: Message, durable: str, reason: str) -> DeadLetter:
    """Wrap a message for the dead-letter stream, unchanged, with what a replay needs.

    The id holds the durable too: dedupe is per stream, and two durables may give up the same
    message. ``Nats-*`` headers are the server's, so the original id travels under our own name.
    """
    own = {
        "Frenzy-Subject": message.subject,
        "Frenzy-Stream": message.stream,
        "Frenzy-Sequence": str(message.sequence),
        "Frenzy-Consumer": durable,
        "Frenzy-Deliveries": str(message.deliveries),
        "Frenzy-Reason": _one_line(reason),
        "Frenzy-Message-Id": message.headers.get(MESSAGE_ID_HEADER, ""),
    }
    kept = {k: v for k, v in message.headers.items() if not k.lower().startswith(_SERVER_HEADERS)}
    return DeadLetter(
        subject=subjects.dead_letter(message.stream, durable),
        payload=message.payload,
        message_id=f"{message.stream}:{message.sequence}:{durable}",
        headers={**kept, **own},
    )


def outgoing_headers(headers: Headers | None, *, message_id: str = "") -> dict[str, str]:
    """Return the headers to send: the caller's, the message id, and the current trace."""
    merged = dict(headers or {})
    if "traceparent" not in merged and (current := traceparent()):
        merged["traceparent"] = current
    if message_id:
        merged[MESSAGE_ID_HEADER] = message_id
    return merged


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject matches a NATS pattern (``*`` one token, trailing ``>`` the rest)."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        want in ("*", token) for want, token in zip(wanted, tokens, strict=True)
    )


def _one_line(text: str) -> str:
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    return " ".join(ascii_text.split())[:_REASON_LIMIT]
