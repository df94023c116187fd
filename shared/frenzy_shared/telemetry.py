"""Traces across every hop, JSON logs that carry the trace, and /metrics.

A ``Telemetry`` is made once in a service's composition root and handed down.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, start_http_server

from frenzy_shared.errors import Misconfigured
from frenzy_shared.settings import ServiceSettings

_PROPAGATOR = TraceContextTextMapPropagator()
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """A service's tracer and metrics registry."""

    service: str
    tracer: trace.Tracer
    registry: CollectorRegistry
    provider: TracerProvider
    closers: list[Callable[[], None]] = field(default_factory=list)

    @contextmanager
    def span(
        self,
        name: str,
        *,
        parent: str = "",
        kind: SpanKind = SpanKind.INTERNAL,
        **attributes: str | float | bool,
    ) -> Iterator[trace.Span]:
        """Open a span; ``parent`` is a ``traceparent`` that came with a message or request.

        Without ``parent``, or with one that is malformed, the current span is the parent, but
        never of a request: the task that serves it may have been started inside another one's.
        """
        base = Context() if kind is SpanKind.SERVER else get_current()
        context = _PROPAGATOR.extract({"traceparent": parent}, base)
        with self.tracer.start_as_current_span(
            name, context=context, kind=kind, attributes=attributes
        ) as span:
            yield span

    def close(self) -> None:
        """Flush spans and stop serving metrics."""
        self.provider.shutdown()
        while self.closers:
            self.closers.pop()()


def traceparent() -> str:
    """Return the current span's W3C ``traceparent``, "" outside any span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent", "")


def configure(service: str, settings: ServiceSettings) -> Telemetry:
    """Set up logging and tracing of this process.

    Raises:
        Misconfigured: an unknown log level or format, or a trace file that cannot be written.
    """
    configure_logging(service, settings.log_level, settings.log_format)
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    if settings.trace_file is not None:
        _check_writable(settings.trace_file)
        provider.add_span_processor(SimpleSpanProcessor(_FileExporter(settings.trace_file)))
    return Telemetry(
        service=service,
        tracer=provider.get_tracer("frenzy"),
        registry=CollectorRegistry(),
        provider=provider,
    )


def configure_logging(service: str, level: str, log_format: str) -> None:
    """Send the process's log to stderr, as JSON lines or as text for people.

    Raises:
        Misconfigured: an unknown level or format.
    """
    if level.upper() not in _LEVELS:
        raise Misconfigured(f"FRENZY_LOG_LEVEL is {level!r}; use one of {', '.join(_LEVELS)}")
    if log_format not in ("json", "text"):
        raise Misconfigured(f"FRENZY_LOG_FORMAT is {log_format!r}; use json or text")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter(service)
        if log_format == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel("WARNING")


def serve_metrics(telemetry: Telemetry, settings: ServiceSettings) -> int:
    """Serve ``/metrics`` until ``telemetry`` is closed, and return the port.

    Raises:
        Misconfigured: the address cannot be bound.
    """
    try:
        server, thread = start_http_server(
            settings.metrics_port, addr=settings.metrics_host, registry=telemetry.registry
        )
    except OSError as error:
        raise Misconfigured(
            f"cannot serve metrics on {settings.metrics_host}:{settings.metrics_port}: "
            f"{error.strerror}",
            suggestions=("set FRENZY_METRICS_PORT to a free port, or 0 for any",),
        ) from error
    telemetry.closers.extend((thread.join, server.server_close, server.shutdown))  # last first
    port: int = server.server_port
    logging.getLogger(__name__).info(
        "metrics on port %d", port, extra={"metrics_port": port, "service_name": telemetry.service}
    )
    return port


def _check_writable(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise Misconfigured(f"FRENZY_TRACE_FILE {path}: {error.strerror}") from error


class _JsonFormatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self.converter = time.gmtime
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            entry["trace_id"] = f"{context.trace_id:032x}"
            entry["span_id"] = f"{context.span_id:016x}"
        entry.update({k: v for k, v in vars(record).items() if k not in _RECORD_FIELDS})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _FileExporter(SpanExporter):
    """Append finished spans to a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = "".join(json.dumps(_span_json(span)) + "\n" for span in spans)
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(lines)
        return SpanExportResult.SUCCESS


def _span_json(span: ReadableSpan) -> Mapping[str, Any]:
    context = span.get_span_context()
    return {
        "name": span.name,
        "service": span.resource.attributes.get("service.name"),
        "trace_id": f"{context.trace_id:032x}" if context else "",
        "span_id": f"{context.span_id:016x}" if context else "",
        "parent_id": f"{span.parent.span_id:016x}" if span.parent else None,
        "kind": span.kind.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
    }
