"""Errors as RFC 9457 problem details: the one table from a code to an HTTP status."""

import math
from http import HTTPStatus
from typing import Any, Final

from opentelemetry import trace

from frenzy_shared.errors import BadRequest, FrenzyError, NotFound, TooManyRequests
from frenzy_shared.messages.http import Problem, ProblemField

RETRY_AFTER_S: Final = 2

_STATUS: Final = {
    "bad_request": HTTPStatus.BAD_REQUEST,
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "quota_exceeded": HTTPStatus.FORBIDDEN,
    "not_found": HTTPStatus.NOT_FOUND,
    "blob_missing": HTTPStatus.NOT_FOUND,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "request_timeout": HTTPStatus.REQUEST_TIMEOUT,
    "invalid_state": HTTPStatus.CONFLICT,
    "payload_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "invalid_spec": HTTPStatus.UNPROCESSABLE_ENTITY,
    "invalid_model_config": HTTPStatus.UNPROCESSABLE_ENTITY,
    "no_feasible_plan": HTTPStatus.UNPROCESSABLE_ENTITY,
    "idempotency_conflict": HTTPStatus.UNPROCESSABLE_ENTITY,
    "blob_corrupt": HTTPStatus.UNPROCESSABLE_ENTITY,
    "too_many_requests": HTTPStatus.TOO_MANY_REQUESTS,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "misconfigured": HTTPStatus.INTERNAL_SERVER_ERROR,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "safe_mode": HTTPStatus.SERVICE_UNAVAILABLE,
    "storage_full": HTTPStatus.INSUFFICIENT_STORAGE,
}
# The connection cannot be used again: the rest of the body was not read.
_CLOSING: Final = frozenset({"payload_too_large", "request_timeout"})


class MethodNotAllowed(BadRequest):
    """The path exists, but not with this method."""

    code = "method_not_allowed"


class RequestTimeout(BadRequest):
    """The client stopped sending its request body."""

    code = "request_timeout"


class UnsupportedMediaType(BadRequest):
    """The body's media type or encoding is not the one this route reads."""

    code = "unsupported_media_type"


def status_of(error: FrenzyError) -> HTTPStatus:
    """Return the HTTP status of an error.

    Something missing that a field of the request's body names is the body's fault (422), not the
    path's (404).
    """
    if isinstance(error, NotFound) and error.problems:
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return _STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_of(error: FrenzyError, instance: str) -> Problem:
    """Describe an error; ``instance`` is the request's path."""
    return Problem(
        type=f"https://frenzy.dev/problems/{error.code.replace('_', '-')}",
        title=error.code.replace("_", " ").capitalize(),
        status=status_of(error),
        detail=error.message,
        code=error.code,
        instance=instance,
        trace_id=current_trace_id(),
        errors=tuple(ProblemField(pointer=p.pointer, detail=p.detail) for p in error.problems),
        suggestions=error.suggestions,
    )


def headers_of(error: FrenzyError) -> dict[str, str]:
    """Return the headers that a client needs besides the body."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="frenzy"'
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.code in _CLOSING:
        headers["Connection"] = "close"
    return headers


def current_trace_id() -> str:
    """Return the trace that the current request belongs to, "" outside any span."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def openapi_responses() -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entry that every route shares: any error is a problem."""
    schema = {"$ref": "#/components/schemas/Problem"}
    content = {"application/problem+json": {"schema": schema}}
    return {"default": {"description": "A problem (RFC 9457)", "content": content}}
