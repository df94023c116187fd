"""The gateway's metrics, in the registry of its telemetry."""

import logging
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from frenzy_shared.errors import Unavailable
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayMetrics:
    """Requests by route template (never by path: ids must not become labels), and jobs by state."""

    registry: CollectorRegistry
    requests: Counter
    seconds: Histogram
    jobs: Gauge

    @classmethod
    def register(cls, registry: CollectorRegistry) -> "GatewayMetrics":
        """Create the metrics in ``registry``, once per registry."""
        return cls(
            registry=registry,
            requests=Counter(
                "frenzy_http_requests",
                "Requests answered",
                ("method", "route", "status"),
                registry=registry,
            ),
            seconds=Histogram(
                "frenzy_http_response_start_seconds",
                "From the request to the first byte of its answer",
                ("method", "route"),
                registry=registry,
            ),
            jobs=Gauge("frenzy_jobs", "Jobs by state", ("state",), registry=registry),
        )

    async def render(self, state: StateStore) -> tuple[bytes, str]:
        """Return the text format and its media type; jobs are left out when the store is down."""
        try:
            counts = await state.counts()
        except Unavailable as error:
            log.warning("no job counts: %s", error.message)
            counts = {}
        self.jobs.clear()  # without waiting until it is filled: scrapes may overlap
        for name, count in counts.items():
            self.jobs.labels(state=name).set(count)
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
