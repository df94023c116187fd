"""Around every request: a span, metrics, security headers, and the last net for errors."""

import logging
import re
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frenzy_gateway.metrics import GatewayMetrics
from frenzy_gateway.problems import headers_of, problem_of, status_of
from frenzy_gateway.throttle import Sender, Throttle
from frenzy_shared.errors import FrenzyError
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_TRACEPARENT: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_COUNTED: Final = frozenset(f"/api/v1/{name}" for name in ("jobs", "arrays", "plans", "estimates"))
_SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class _Answer:
    """What is known of a request's answer."""

    start: float = field(default_factory=perf_counter)
    status: int = 0  # 0: nothing was sent yet
    seconds: float = 0.0


class Turnstile:
    """Turn back at the door who was refused just now and did not wait.

    Everything behind it (routing, authentication, reading the body) costs more than all that is
    done for whom it turns back. Only who proved once to be the project's is ever remembered.
    """

    def __init__(self, app: ASGIApp, throttle: Throttle) -> None:
        self._app = app
        self._throttle = throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "http" and scope["method"] == "POST":
            request = Request(scope)
            refusal = self._throttle.still_refused(sender_of(request))
            if refusal is not None and scope["path"] in _COUNTED:
                await problem_response(request, refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Observed:
    """The outermost layer: nothing below may end a request without an answer and a record."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, metrics: GatewayMetrics) -> None:
        self._app = app
        self._telemetry = telemetry
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request inside a span."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header = Headers(scope=scope).get("traceparent", "")
        parent = header if _TRACEPARENT.fullmatch(header) else ""
        method = scope["method"]
        with self._telemetry.span(
            method,
            parent=parent,
            kind=SpanKind.SERVER,
            **{"http.request.method": method, "url.path": scope["path"]},
        ) as span:
            answer = _Answer()
            try:
                await self._serve(scope, receive, send, answer)
            finally:
                self._record(scope, span, answer)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, answer: _Answer) -> None:
        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.seconds = perf_counter() - answer.start
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except ClientDisconnect:
            log.info("the client left: %s %s", scope["method"], scope["path"])
        except Exception:
            if answer.status:
                raise  # part of the answer is out: the server must break the connection
            log.exception("unexpected error: %s %s", scope["method"], scope["path"])
            error = FrenzyError("an unexpected error; the gateway's log says more")
            await problem_response(Request(scope), error)(scope, receive, observed)

    def _record(self, scope: Scope, span: Span, answer: _Answer) -> None:
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        span.update_name(f"{scope['method']} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": answer.status})
        if answer.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        self._metrics.requests.labels(method=method, route=route, status=answer.status).inc()
        if answer.status:
            self._metrics.seconds.labels(method=method, route=route).observe(answer.seconds)


def sender_of(request: Request) -> Sender:
    """Return what tells a refused sender from others."""
    return request.headers.get("authorization", ""), request.scope["query_string"]


def problem_response(
    request: Request, error: FrenzyError, headers: dict[str, str] | None = None
) -> Response:
    """Return an error as ``application/problem+json``."""
    problem = problem_of(error, request.url.path)
    return Response(
        problem.model_dump_json(),
        status_code=status_of(error),
        media_type="application/problem+json",
        headers={**headers_of(error), **(headers or {})},
    )
