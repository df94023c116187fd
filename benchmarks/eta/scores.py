"""How good the bands are: coverage, and pinball loss beside a baseline that counts the queue."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.eta.months import Outcome

from frenzy_scheduler.core.forecast import Band

QUANTILES = (0.5, 0.9)
BINS = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200, 10**9)  # positions in the queue, upper ends


@dataclass(frozen=True, kw_only=True)
class Score:
    """``known``: the share that got a p90 at all, the only ones that the rest counts."""

    count: int
    known: float
    before_p50: float
    before_p90: float
    pinball_s: float
    baseline_s: float | None = None

    @property
    def change(self) -> float | None:
        """Return the pinball loss against the baseline's; -0.3 is 30 % lower."""
        return None if self.baseline_s is None else self.pinball_s / self.baseline_s - 1


class QueueLength:
    """Predicts a wait from the position alone: the quantiles of the waits seen there before.

    Fitted on other months of the same workload and policy, which a live system would not have. The
    end is the start plus what MARP's first plan takes.
    """

    def __init__(self, seen: Iterable[Outcome]) -> None:
        waits: dict[int, list[float]] = {}
        for one in seen:
            if one.start_s is not None:
                waits.setdefault(_bin(one.asked.position), []).append(one.start_s)
        self._waits = {size: sorted(found) for size, found in waits.items()}

    def start(self, one: Outcome) -> tuple[float, ...]:
        """Return the quantiles of the wait."""
        near = min(self._waits, key=lambda size: abs(size - _bin(one.asked.position)))
        waits = self._waits[near]
        return tuple(waits[min(int(share * len(waits)), len(waits) - 1)] for share in QUANTILES)

    def end(self, one: Outcome) -> tuple[float, ...]:
        """Return the quantiles of the end."""
        return tuple(wait + one.asked.alone_s for wait in self.start(one))


Truth = Callable[[Outcome], float | None]
Guess = Callable[[Outcome], Band | None]
Rival = Callable[[Outcome], tuple[float, ...]]


def starts(one: Outcome) -> tuple[float | None, Band | None]:
    """Return when a waiting job started, and what was predicted."""
    return one.start_s, one.asked.eta.start


def ends_of_waiting(one: Outcome) -> tuple[float | None, Band | None]:
    """Return when a job ended that waited when it was asked for."""
    return (one.end_s if one.asked.position else None), one.asked.eta.end


def ends_of_running(one: Outcome) -> tuple[float | None, Band | None]:
    """Return when a job ended that was running."""
    return (None if one.asked.position else one.end_s), one.asked.eta.end


def score(
    outcomes: Sequence[Outcome],
    what: Callable[[Outcome], tuple[float | None, Band | None]],
    rival: Rival | None = None,
) -> Score | None:
    """Score one kind of prediction; None when there are none."""
    found = [(one, truth, band) for one in outcomes for truth, band in [what(one)]]
    relevant = [(one, y, band) for one, y, band in found if y is not None and band is not None]
    known = [
        (one, y, (band.p50_s, band.p90_s))
        for one, y, band in relevant
        if band.p50_s is not None and band.p90_s is not None
    ]
    if not known:
        return None
    return Score(
        count=len(relevant),
        known=len(known) / len(relevant),
        before_p50=fmean(y <= guess[0] for _, y, guess in known),
        before_p90=fmean(y <= guess[1] for _, y, guess in known),
        pinball_s=fmean(_pinball(y, guess) for _, y, guess in known),
        baseline_s=fmean(_pinball(y, rival(one)) for one, y, _ in known) if rival else None,
    )


def _pinball(truth: float, guesses: Sequence[float | None]) -> float:
    losses = [
        max(share * (truth - guess), (share - 1) * (truth - guess))
        for share, guess in zip(QUANTILES, guesses, strict=True)
        if guess is not None
    ]
    return fmean(losses)


def _bin(position: int) -> int:
    return next(size for size, most in enumerate(BINS) if position <= most)
