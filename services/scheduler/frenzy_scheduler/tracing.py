"""Link spans to the traces of jobs."""

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def span_context(traceparent: str) -> SpanContext | None:
    """Return the context that a ``traceparent`` names, None when it names none."""
    carrier = {"traceparent": traceparent}
    context = TraceContextTextMapPropagator().extract(carrier)
    found = trace.get_current_span(context).get_span_context()
    return found if traceparent and found.is_valid else None
