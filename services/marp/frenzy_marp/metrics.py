"""What MARP measures about itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from frenzy_marp.core.learning_runs import Run

_RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0)
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

        self._errors = Histogram(
            "frenzy_marp_prediction_error_ratio",
            "Observed over shown: memory of the worst rank, time of a step",
            ["quantity", "framework"],
            buckets=_RATIOS,
            registry=registry,
        )
        self._drifts = Gauge(
            "frenzy_marp_prediction_drifts",
            "Methods and kinds whose recent peaks were outside the predicted bands",
            registry=registry,
        )
        self._lag = Gauge(
            "frenzy_consumer_lag",
            "Messages that no replica has handled yet",
            ["durable"],
            registry=registry,
        )

    def learned(self, run: Run) -> None:
        """Note how far off the predictions that an attempt ran with were."""
        framework = run.conditions.framework.value
        error = run.memory_error
        if run.peak_bytes is not None and error is not None and error.exact:
            ratio = run.peak_bytes / run.shown_bytes
            self._errors.labels(quantity="memory", framework=framework).observe(ratio)
        if run.step_s is not None:
            ratio = run.step_s / run.shown_step_s
            self._errors.labels(quantity="step", framework=framework).observe(ratio)

    def drifting(self, groups: int) -> None:
        """Note how many methods' predictions drift."""
        self._drifts.set(groups)

    def planned(self, seconds: float, outcome: str) -> None:
        """Note one job planned; ``outcome`` is "feasible", "infeasible" or an error's code."""
        self._plan_s.observe(seconds)
        self._answers.labels(outcome=outcome).inc()

    def lagged(self, durable: str, messages: int) -> None:
        """Show how much a durable has before it."""
        self._lag.labels(durable=durable).set(messages)
