"""Every error a person or a program can meet, with a stable code.

The gateway maps ``code`` to an HTTP status in one table; the SDK maps it back to the same class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One thing wrong with one field; ``pointer`` is an RFC 6901 JSON pointer."""

    pointer: str
    detail: str


class FrenzyError(Exception):
    """Root of all Frenzy errors.

    ``message`` says what is wrong and where; ``suggestions`` say what to do about it.
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[FieldProblem] = (),
        suggestions: Sequence[str] = (),
    ) -> None:
        """Keep the texts that the edges show to people."""
        super().__init__(message)
        self.message = message
        self.problems = tuple(problems)
        self.suggestions = tuple(suggestions)


class InvalidSpec(FrenzyError):
    """The job specification, or another request body, breaks a rule."""

    code = "invalid_spec"


class InvalidModelConfig(InvalidSpec):
    """A model's configuration is impossible or of an unsupported family."""

    code = "invalid_model_config"


class NoFeasiblePlan(FrenzyError):
    """No plan can ever fit on the cluster's devices."""

    code = "no_feasible_plan"


class IdempotencyConflict(FrenzyError):
    """The same idempotency key came with a different body."""

    code = "idempotency_conflict"


class QuotaExceeded(FrenzyError):
    """The project's quota does not allow this request."""

    code = "quota_exceeded"


class Unauthenticated(FrenzyError):
    """No token, an unknown token, or an expired one."""

    code = "unauthenticated"


class Forbidden(FrenzyError):
    """The token is valid but its role does not allow the request."""

    code = "forbidden"


class NotFound(FrenzyError):
    """No such object, or none visible to the caller."""

    code = "not_found"


class InvalidState(FrenzyError):
    """The object's state does not allow the request (for example cancel after success)."""

    code = "invalid_state"


class BadRequest(FrenzyError):
    """The request is malformed: not JSON, a bad cursor, a bad header."""

    code = "bad_request"


class PayloadTooLarge(FrenzyError):
    """The request body is over its limit."""

    code = "payload_too_large"


class BlobMissing(NotFound):
    """No blob with that digest is stored."""

    code = "blob_missing"


class BlobCorrupt(FrenzyError):
    """A blob's content does not have the digest it is stored or sent under."""

    code = "blob_corrupt"


class Unavailable(FrenzyError):
    """A component is unreachable, overloaded or full; nothing was accepted; try again later."""

    code = "unavailable"


class TooManyRequests(Unavailable):
    """A project asks for more than its share; come again after ``retry_after_s`` seconds."""

    code = "too_many_requests"

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[FieldProblem] = (),
        suggestions: Sequence[str] = (),
        retry_after_s: float = 1.0,
    ) -> None:
        """Keep how long to wait, too."""
        super().__init__(message, problems=problems, suggestions=suggestions)
        self.retry_after_s = retry_after_s


class StorageFull(Unavailable):
    """The disk under a data folder is full."""

    code = "storage_full"


class SafeMode(Unavailable):
    """The store's history went backwards; nothing changes until somebody has put it right."""

    code = "safe_mode"


class Misconfigured(FrenzyError):
    """A setting, a server's version or a server's configuration is not acceptable."""

    code = "misconfigured"


def wrong_field(field: str, detail: str, suggestions: Sequence[str] = ()) -> InvalidSpec:
    """Return the error of one field, by its name or its pointer (``resources/gpus``)."""
    path = field.lstrip("/")
    problem = FieldProblem(pointer=f"/{path}", detail=detail)
    text = f"{path.replace('/', '.')}: {detail}"
    return InvalidSpec(text, problems=(problem,), suggestions=suggestions)
