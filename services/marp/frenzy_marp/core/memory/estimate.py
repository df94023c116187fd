"""From the peak of a rank to the four quantities of a plan, with their uncertainty."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from frenzy_marp.core.learning_errors import Correction
from frenzy_marp.core.learning_prior import unlearned
from frenzy_marp.core.memory.predictor import Peak
from frenzy_shared.domain.plan import Band, MemoryEstimate, MemoryTerm
from frenzy_shared.units import GIB, KIB, MIB

CORRECTION_TERM: Final = "correction from earlier runs"  # what the job's own last attempt demands
LEARNED_TERM: Final = "learned from finished runs"

# Covers the scalars of tiny models; the relative error is `Correction`'s.
_ABSOLUTE_ERROR: Final = 128 * KIB

# CUDA only, and priors until runs report. Context and lazily loaded kernels: 0.47 GiB on A100
# (torch 2.1.1), 0.25 to 0.42 GiB on RTX 3090 and RTX 6000 Ada (stas00/ml-engineering,
# InvokeAI#9413, unsloth-zoo#1053); more on Blackwell.
_CONTEXT: Final = GIB // 2
_CONTEXT_BLACKWELL: Final = 614 * MIB
# NCCL's first communicator: 544 MB for 2 ranks, 688 MB for more, on A100 with NVLink (NCCL#964);
# data parallelism has one.
_COMMUNICATOR: Final = 614 * MIB
# cuBLAS: 32 MiB on Hopper, 8 MiB elsewhere (torch's defaults for CUBLAS_WORKSPACE_CONFIG).
_WORKSPACE: Final = 32 * MIB
# Fragments that even a full allocator cannot give back: an allowance, not a measurement.
_UNRELEASABLE: Final = 0.03
_SETTLED_WITHIN: Final = 16  # bytes that rounding can be off, with a correction of a quarter
_AROUND_ERROR: Final = 0.1  # standard error of context, communicator and workspace, of their sum


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTraits:
    """What of a device decides how much lies around the allocated bytes."""

    emulated: bool
    compute_capability: str
    ranks: int


def estimate(
    peak: Peak, traits: DeviceTraits, *, correction: Correction | None = None
) -> MemoryEstimate:
    """Return the estimate for one device kind; ``correction`` changes what was predicted.

    Without one it is what is believed before any run (``unlearned``), as everywhere below.

    An emulated device has neither allocator nor context: there all four are the allocated bytes,
    and a run survives on a device of ``required`` bytes.
    """
    correction = correction or unlearned(emulated=traits.emulated)
    expected = round(peak.allocated * correction.factor)
    terms = peak.terms
    if expected != peak.allocated:
        name = CORRECTION_TERM if correction.demanded else LEARNED_TERM
        terms = (*terms, MemoryTerm(name=name, size_bytes=expected - peak.allocated))
    allocated = _band(expected, correction)
    around = _around(traits)
    if traits.emulated:
        reserved = device = required = allocated
    else:
        reserved = _shifted(allocated, correction.reserved_ratio, 0)
        device = _shifted(reserved, 1.0, around)
        required = _shifted(allocated, 1 + _UNRELEASABLE, around)
    return MemoryEstimate(
        allocated=allocated,
        reserved=reserved,
        device=device,
        required=required,
        moment=peak.moment,
        terms=terms,
        mode="learned" if correction.runs else "analytical",
        runs=correction.runs,
    )


def uncorrected(memory: MemoryEstimate) -> int:
    """Return the allocated bytes that were predicted before any correction."""
    corrections = (CORRECTION_TERM, LEARNED_TERM)
    learned = sum(term.size_bytes for term in memory.terms if term.name in corrections)
    return memory.allocated.expected - learned


def room_ratio(allocated: int, capacity: int, traits: DeviceTraits) -> float:
    """Return how many times ``allocated`` bytes fill a device, with what lies around them."""
    if traits.emulated:
        return capacity / allocated
    return (capacity - _around(traits)) / (1 + _UNRELEASABLE) / allocated


def oom_probability(
    allocated: int, capacity: int, traits: DeviceTraits, correction: Correction
) -> float:
    """Return the probability that a run of ``allocated`` expected bytes outgrows its device."""
    blur = 0.0 if traits.emulated else _AROUND_ERROR * _around(traits) / allocated
    return correction.chance_beyond(room_ratio(allocated, capacity, traits), blur)


def required_bytes(
    allocated: int, traits: DeviceTraits, *, correction: Correction | None = None
) -> int:
    """Return ``estimate(...).required.high`` without the rest: what the search compares."""
    correction = correction or unlearned(emulated=traits.emulated)
    high = _band(round(allocated * correction.factor), correction).high
    return high if traits.emulated else int(high * (1 + _UNRELEASABLE)) + _around(traits)


@lru_cache(maxsize=256)
def room_bytes(capacity: int, traits: DeviceTraits, *, correction: Correction | None = None) -> int:
    """Return the most allocated bytes that a device of ``capacity`` survives; -1 when none.

    The inverse of ``required_bytes``: solved for real numbers, then settled for whole bytes.
    """
    correction = correction or unlearned(emulated=traits.emulated)
    around = 0 if traits.emulated else _around(traits)
    beside = 1.0 if traits.emulated else 1 + _UNRELEASABLE
    high = (capacity - around) / beside - _ABSOLUTE_ERROR
    near = int(high / (1 + correction.above) / correction.factor)
    below, above = max(-1, near - _SETTLED_WITHIN), max(0, near + _SETTLED_WITHIN)
    while above - below > 1:
        middle = (below + above) // 2
        if required_bytes(middle, traits, correction=correction) <= capacity:
            below = middle
        else:
            above = middle
    return below


def _around(traits: DeviceTraits) -> int:
    major = traits.compute_capability.split(".")[0]
    blackwell = major.isdigit() and int(major) >= 10
    context = _CONTEXT_BLACKWELL if blackwell else _CONTEXT
    return context + _WORKSPACE + (_COMMUNICATOR if traits.ranks > 1 else 0)


def _band(expected: int, correction: Correction) -> Band:
    below = int(expected * correction.below) + _ABSOLUTE_ERROR
    above = int(expected * correction.above) + _ABSOLUTE_ERROR
    return Band(low=max(0, expected - below), expected=expected, high=expected + above)


def _shifted(band: Band, factor: float, constant: int) -> Band:
    low, expected, high = (
        int(size * factor) + constant for size in (band.low, band.expected, band.high)
    )
    return Band(low=low, expected=expected, high=high)
