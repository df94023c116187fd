"""Predict every profiled micro-batch, fit the priors, and compare."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from math import exp, log
from typing import Any, Final

from benchmarks.speed.profiles import Row

from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.speed import Pace, pace
from frenzy_marp.core.speed_rates import PRIORS, Priors
from frenzy_shared.domain.plan import Precision

FITTED: Final = (
    "vector_share",
    "tensor_share",
    "activation_passes",
    "score_passes",
    "host_share",
)
_LARGEST: Final = {"vector_share": 0.95, "tensor_share": 0.9, "host_share": 0.95}
_START: Final = Priors(
    vector_share=0.8, tensor_share=0.6, activation_passes=4, score_passes=20, host_share=0.5
)
_PULL: Final = 0.007  # of the starting values: what the rows do not tell stays there


def predicted_s(row: Row, priors: Priors) -> tuple[float, float]:
    """Return the predicted seconds of forward and backward, and of the update, on one rank."""
    ready = _pace(row, priors)
    compute, launch, update, communication = ready.on(1).parts_s(0, 1, recomputes=False)
    return compute + launch + communication, update


def fit(rows: Sequence[Row]) -> Priors:
    """Return the priors with the least mean error over models, cards and tensor degrees."""
    best = _START
    least, stride = _loss(rows, best), 0.3
    while stride > 0.02:
        moved = False
        for name in FITTED:
            for factor in (exp(stride), exp(-stride)):
                size = min(getattr(best, name) * factor, _LARGEST.get(name, 1e9))
                tried = replace(best, **{name: size})
                loss = _loss(rows, tried)
                if loss < least - 1e-6:
                    best, least, moved = tried, loss, True
        stride = stride if moved else stride / 2
    return best


def left_out(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Return relative errors of every card's rows, predicted with priors that never saw it."""
    found: dict[str, list[float]] = {}
    for card in dict.fromkeys(row.card for row in rows):
        priors = fit([row for row in rows if row.card != card])
        own = [row for row in rows if row.card == card]
        found[card] = [abs(predicted_s(row, priors)[0] / row.compute_s - 1) for row in own]
    return found


def ranks(rows: Sequence[Row], priors: Priors) -> dict[str, float]:
    """Return the rank correlation over cards and tensor degrees of each model and micro-batch."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.model} x {row.micro_batch}", []).append(row)
    return {
        name: _spearman(
            [row.compute_s for row in group], [predicted_s(row, priors)[0] for row in group]
        )
        for name, group in groups.items()
        if len(group) >= 4
    }


def errors_by(
    rows: Sequence[Row], priors: Priors, key: Callable[[Row], str]
) -> dict[str, dict[str, Any]]:
    """Return median error and median ratio of predicted to measured time, by ``key``."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratio = predicted_s(row, priors)[0] / row.compute_s
        ratios.setdefault(key(row), []).append(ratio)
    return {name: described(values) for name, values in sorted(ratios.items())}


def updates(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return how predicted updates compare with measured ones, by model."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row.update_s > 1e-4:
            ratio = predicted_s(row, PRIORS)[1] / row.update_s
            ratios.setdefault(row.model, []).append(ratio)
    return {name: described(values) for name, values in sorted(ratios.items())}


def described(ratios: Sequence[float]) -> dict[str, Any]:
    """Return how many ratios there are, their median and the median of their errors."""
    return {
        "rows": len(ratios),
        "median_ratio": round(statistics.median(ratios), 3),
        "median_error": round(statistics.median(abs(ratio - 1) for ratio in ratios), 3),
    }


def _pace(row: Row, priors: Priors) -> Pace:
    setup, gpu, kind = _job(row)
    bucket = bucket_elements(setup.model)
    return pace(
        setup,
        kind,
        gpu,
        Precision.FP32,
        bucket,
        tensor=row.tensor,
        tf32=row.tf32,
        priors=priors,
    )


@cache
def _job(row: Row) -> tuple[Any, Any, Any]:
    return row.setup, row.gpu, row.kind


def _loss(rows: Sequence[Row], priors: Priors) -> float:
    cells: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        error = abs(log(predicted_s(row, priors)[0] / row.compute_s))
        cells.setdefault((row.model, row.card, row.tensor), []).append(error)
    pull = sum(
        abs(log(getattr(priors, field.name) / getattr(_START, field.name)))
        for field in fields(Priors)
    )
    return statistics.mean(statistics.mean(cell) for cell in cells.values()) + _PULL * pull


def _spearman(one: Sequence[float], other: Sequence[float]) -> float:
    return round(statistics.correlation(_ranked(one), _ranked(other)), 3)


def _ranked(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0.0] * len(values)
    for place, index in enumerate(order):
        places[index] = float(place)
    return places
