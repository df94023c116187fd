"""HTTP without I/O: what to send, how often to try, and what an answer means.

An *operation* is a generator. It yields ``Call`` (send this, give me the outcome) and ``Pause``
(let this much time pass), and returns its result. ``transport.py`` drives operations, once with
blocking and once with asynchronous I/O, so every rule is written and tested once.
"""

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from frenzy.errors import Unreachable, from_answer

T = TypeVar("T")

_BUSY: Final = frozenset({429, 502, 503, 504})  # nothing was accepted: try again
_LONGEST_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request below ``root``. At most one of ``json``, ``text`` and ``file`` is the body.

    Every call that the SDK makes may be repeated: reads, content-addressed uploads, submits with
    an idempotency key, cancels.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    text: str | None = field(default=None, repr=False)  # may be a secret
    file: Path | None = None
    patience_s: float = 30.0  # how long the server may be silent
    root: str = "/api/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """No answer: the connection failed, broke or timed out; whether it arrived is unknown."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Let ``seconds`` pass."""

    seconds: float


Outcome: TypeAlias = Answer | Lost
Operation: TypeAlias = Generator[Call | Pause, Outcome | None, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often to try and how long to wait in between: exponential with full jitter, seconds."""

    attempts: int = 6
    base_s: float = 0.2
    cap_s: float = 5.0

    def delay_s(self, failures: int, asked_s: float = 0.0) -> float:
        """Return the pause after ``failures`` >= 1; never less than the server asked for."""
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(failures, 16))
        return max(asked_s, ceiling * (0.5 + random.random() / 2))  # noqa: S311 - jitter


def exchange(
    call: Call, retry: Retry, *, accept: frozenset[int] = frozenset()
) -> Operation[Answer]:
    """Send until there is a final answer.

    ``accept`` are error statuses that the caller reads itself.

    Raises:
        FrenzyError: the class of the answer's problem code.
        Unreachable: no try got an answer.
    """
    for failures in range(1, retry.attempts + 1):
        outcome = yield call
        if isinstance(outcome, Answer) and outcome.status not in _BUSY:
            break
        if failures < retry.attempts:
            yield Pause(seconds=retry.delay_s(failures, asked_s(outcome)))
    if not isinstance(outcome, Answer):
        raise unreachable(outcome)
    if outcome.status >= 400 and outcome.status not in accept:
        raise from_answer(outcome.status, outcome.body)
    return outcome


def unreachable(outcome: Lost | None) -> Unreachable:
    """Build the error for a server that gives no answer."""
    reason = outcome.reason if outcome else "no answer"
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return Unreachable(
            f"the server's certificate is not trusted: {reason}",
            suggestions=("name the cluster's authority: FRENZY_CA=/path/to/ca.pem",),
        )
    return Unreachable(
        f"cannot reach the Frenzy server: {reason}",
        suggestions=("start one on this machine: frenzy up", "check FRENZY_URL or --url"),
    )


def asked_s(outcome: Outcome | None) -> float:
    """Return how long the server asked to be left alone, within reason."""
    if not isinstance(outcome, Answer):
        return 0.0
    text = outcome.headers.get("retry-after", "")
    return min(float(text), _LONGEST_S) if text.isdigit() else 0.0
