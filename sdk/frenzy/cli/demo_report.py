"""The end of `frenzy demo`: what was predicted, what was measured; as a table and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from frenzy.cli import output, show
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages.http import JobView
from frenzy_shared.units import format_bytes

_TITLES: Final = (
    "\njob",
    "\nstate",
    "\nkind",
    "\ngpu",
    "\nZeRO",
    "peak\npredicted",
    "\nobserved",
    "\nerror",
    "\nloss",
    "tokens/s\npredicted",
    "\nobserved",
)
_EMULATED: Final = "emulated-"
NOTES: Final = (
    "error: predicted above (+) or below (-) observed, of observed. "
    "tokens/s is the whole gang's; predicted speeds are priors, not yet learned from runs."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one job; ``view`` is ``None`` for one that was refused at submit."""

    name: str
    view: JobView | None


def summary(outcomes: Sequence[Outcome]) -> Table:
    """Compare prediction and measurement, one line a rank."""
    rows = [row for outcome in outcomes for row in _rows(outcome)]
    return output.rows_table(_TITLES, rows)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return one entry of the result for programs; peaks are the worst rank's."""
    view = outcome.view
    devices = view.devices if view else ()
    first = view.ranks[0] if view and view.ranks else None
    peaks = [r.peak_allocated_bytes for r in (view.ranks if view else ()) if r.peak_allocated_bytes]
    return {
        "name": outcome.name,
        "id": view.id if view else None,
        "state": view.state.value if view else "REFUSED",
        "reason": view.reason if view else "NoFeasiblePlan",
        "kind": view.kind if view else None,
        "devices": [f"{device.node}/{device.device}" for device in devices],
        "nodes": list(dict.fromkeys(device.node for device in devices)),
        "zero_stage": view.plan.parallelism.zero_stage if view and view.plan else None,
        "predicted_peak_bytes": _predicted(view) if view else None,
        "observed_peak_bytes": max(peaks, default=None),
        "loss_first": first.loss_first if first else None,
        "loss_last": first.loss_last if first else None,
        "predicted_tokens_per_second": _predicted_speed(view) if view else None,
        "tokens_per_second": first.tokens_per_second if first else None,
    }


def as_expected(outcome: Outcome) -> bool:
    """Tell whether the job ended as the demo's story says."""
    if outcome.name == "impossible":
        return outcome.view is None
    return outcome.view is not None and outcome.view.state is JobState.SUCCEEDED


def _rows(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    view = outcome.view
    if view is None:
        yield (outcome.name, "REFUSED", *[None] * (len(_TITLES) - 2))
        return
    stage = view.plan.parallelism.zero_stage if view.plan else None
    predicted = _predicted(view)
    for rank in view.ranks:
        device = view.devices[rank.rank] if rank.rank < len(view.devices) else None
        observed = rank.peak_allocated_bytes
        yield (
            outcome.name,
            show.state(view.state),
            (view.kind or "").removeprefix(_EMULATED),  # all kinds are: that only takes width
            f"{device.node}/{device.device}" if device else None,
            stage,
            format_bytes(predicted) if predicted else None,
            format_bytes(observed) if observed else None,
            show.error_percent(predicted, observed),
            show.loss_change(rank.loss_first, rank.loss_last),
            f"{speed:,.0f}" if (speed := _predicted_speed(view)) else None,
            f"{rank.tokens_per_second:,.0f}" if rank.tokens_per_second else None,
        )


def _predicted(view: JobView) -> int | None:
    return view.plan.memory.allocated.expected if view.plan else None


def _predicted_speed(view: JobView) -> float | None:
    return view.plan.speed.tokens_per_s if view.plan else None
