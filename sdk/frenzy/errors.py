"""Errors that the SDK raises: the server's own classes, found again by their code.

Catch ``FrenzyError`` for everything, or a subclass for one thing:
``except frenzy.errors.NoFeasiblePlan as refused: print(refused.suggestions)``.
"""

from collections.abc import Iterator

from pydantic import ValidationError

from frenzy_shared.errors import (
    BadRequest,
    BlobCorrupt,
    BlobMissing,
    FieldProblem,
    Forbidden,
    FrenzyError,
    IdempotencyConflict,
    InvalidModelConfig,
    InvalidSpec,
    InvalidState,
    Misconfigured,
    NoFeasiblePlan,
    NotFound,
    PayloadTooLarge,
    QuotaExceeded,
    StorageFull,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from frenzy_shared.messages.http import Problem

__all__ = [
    "BadRequest",
    "BlobCorrupt",
    "BlobMissing",
    "FieldProblem",
    "Forbidden",
    "FrenzyError",
    "IdempotencyConflict",
    "InvalidModelConfig",
    "InvalidSpec",
    "InvalidState",
    "Misconfigured",
    "NoFeasiblePlan",
    "NotFound",
    "PayloadTooLarge",
    "QuotaExceeded",
    "StorageFull",
    "TimedOut",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "from_answer",
]


class Unreachable(Unavailable):
    """No answer came from the server, or the connection broke every time."""

    code = "unreachable"


class TimedOut(FrenzyError):
    """The caller's own time limit passed before the job finished."""

    code = "timed_out"


def from_answer(status: int, body: bytes) -> FrenzyError:
    """Build the error that an HTTP answer stands for.

    A body that is not problem details (a proxy's page, for example) gives a plain
    ``FrenzyError`` that quotes its first line; 401, 403, 404 and 503 keep their class.
    """
    try:
        problem = Problem.decode(body)
    except ValidationError:
        return _from_status(status, body)
    kind = _by_code().get(problem.code, FrenzyError)
    hints = problem.suggestions
    if problem.trace_id and kind is FrenzyError:
        hints = (*hints, f"report it with trace id {problem.trace_id}")
    fields = (FieldProblem(pointer=e.pointer, detail=e.detail) for e in problem.errors)
    return kind(problem.detail or problem.title, problems=tuple(fields), suggestions=hints)


def _from_status(status: int, body: bytes) -> FrenzyError:
    plain: dict[int, type[FrenzyError]] = {
        401: Unauthenticated,
        403: Forbidden,
        404: NotFound,
        413: PayloadTooLarge,
        429: TooManyRequests,
        502: Unavailable,
        503: Unavailable,
        504: Unavailable,
    }
    first_line = body.decode("utf-8", "replace").strip().partition("\n")[0][:200]
    text = f"the server answered {status}" + (f": {first_line}" if first_line else "")
    return plain.get(status, FrenzyError)(text)


def _by_code() -> dict[str, type[FrenzyError]]:
    return {kind.code: kind for kind in _descendants(FrenzyError)}


def _descendants(kind: type[FrenzyError]) -> Iterator[type[FrenzyError]]:
    for child in kind.__subclasses__():
        if "code" in vars(child):
            yield child
        yield from _descendants(child)
