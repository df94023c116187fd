"""What MARP measures about itself."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_PLAN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """Prometheus series, made once in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._plan_s = Histogram(
            "frenzy_marp_plan_seconds",
            "Making the plans of one job",
            buckets=_PLAN_S,
            registry=registry,
        )
        self._answers = Counter(
            "frenzy_marp_answers",
            "Plans made, by what came of them",
            ["outcome"],
            registry=registry,
        )

    def planned(self, seconds: float, outcome: str) -> None:
        """Note one job planned; ``outcome`` is "feasible", "infeasible" or an error's code."""
        self._plan_s.observe(seconds)
        self._answers.labels(outcome=outcome).inc()
