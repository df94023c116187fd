"""What a job pays at least for its end, when devices have prices that change with time.

A job's work is done at the rate 1 / seconds of the plan that it has at the moment. If it ends at
C, it has waited C - ready and paid for its devices. With a value ``worth`` on its whole work, no
schedule that ends at C pays less than

    C - ready + worth - integral from ready to C of max over plans (worth / seconds - price)+

whatever ``worth`` is. Inside a slot, where prices stay, that is linear in C and concave in
``worth``; so the best ``worth`` of a slot is the one whose lower end is highest.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_WORTHS: Final = 24  # tried first, from little to much
_FINER: Final = 10  # between two of them, where it matters
_REFINEMENTS: Final = 6


@dataclass(frozen=True, slots=True)
class Work:
    """One job: its plans' kinds (numbers), seconds for the whole job, and device-seconds.

    It is ready to have devices ``late_s`` after it was submitted.
    """

    ready_s: float
    late_s: float
    kinds: NDArray[np.intp]
    seconds: Floats
    device_s: Floats

    @property
    def alone_s(self) -> float:
        """Return the seconds of the fastest plan."""
        return float(self.seconds.min())


def least(one: Work, edges: Floats, prices: Floats) -> tuple[float, Floats]:
    """Return what a job pays at least, and the device-seconds by kind and slot that it buys.

    ``prices`` are per device-second, by kind (row) and slot between ``edges``; after the last
    edge devices cost nothing.
    """
    first = max(int(np.searchsorted(edges, one.ready_s, side="right")) - 1, 0)
    ends = edges[first + 1 :]
    lengths = np.diff(np.append(one.ready_s, ends))
    paid = prices[one.kinds, first:] * (one.device_s / one.seconds)[:, None]  # per second
    high = 4 * max(float(ends[-1]) - one.ready_s, float(one.seconds.max())) + 10 * paid.max()
    worths = np.append(np.geomspace(one.alone_s / 2, high, _WORTHS), one.alone_s)
    worths.sort()
    table = _by_slot(one, worths, paid, lengths)
    for _ in range(_REFINEMENTS):
        slot = int(table.max(0).argmin())
        best = int(table[:, slot].argmax())
        around = worths[max(best - 1, 0)], worths[min(best + 1, len(worths) - 1)]
        finer = np.linspace(*around, _FINER + 2)[1:-1]
        worths = np.append(worths, finer)
        table = np.append(table, _by_slot(one, finer, paid, lengths), axis=0)
        order = worths.argsort()
        worths, table = worths[order], table[order]
    slot = int(table.max(0).argmin())
    bought = _bought(one, float(worths[table[:, slot].argmax()]), slot, paid, lengths)
    use = np.zeros_like(prices)
    for kind in np.unique(one.kinds):
        use[kind, first:] = bought[one.kinds == kind].sum(0)
    return float(table.max(0).min()), use


def _by_slot(one: Work, worths: Floats, paid: Floats, lengths: Floats) -> Floats:
    """Return the least that a job pays which ends in a slot (column), by worth (row).

    The last column is for whoever ends after all slots.
    """
    gains = worths[:, None, None] / one.seconds[None, :, None] - paid[None]
    gained = np.cumsum(np.maximum(gains.max(1), 0.0) * lengths, axis=1)
    waited = np.cumsum(lengths)
    at_ends = waited + worths[:, None] - gained
    at_starts = np.column_stack([worths, at_ends[:, :-1]])
    after = np.where(worths <= one.alone_s, at_ends[:, -1], -np.inf)
    return np.column_stack([np.minimum(at_starts, at_ends), after])


def _bought(one: Work, worth: float, slot: int, paid: Floats, lengths: Floats) -> Floats:
    """Return the device-seconds that a job uses, by plan (row), until it ends in ``slot``."""
    gains = worth / one.seconds[:, None] - paid
    plan, columns = gains.argmax(0), np.arange(len(lengths))
    time_s = np.where(gains[plan, columns] > 0, lengths, 0.0)
    time_s[slot + 1 :] = 0.0
    done = np.minimum(np.cumsum(time_s / one.seconds[plan]), 1.0)
    bought = np.zeros_like(paid)
    bought[plan, columns] = np.diff(done, prepend=0.0) * one.device_s[plan]
    return bought
