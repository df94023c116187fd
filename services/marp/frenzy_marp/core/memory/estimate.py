"""From the peak of a rank to the four quantities of a plan, with their uncertainty."""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.memory.predictor import Peak
from frenzy_shared.domain.plan import Band, MemoryEstimate, MemoryTerm
from frenzy_shared.units import GIB, KIB, MIB

CORRECTION_TERM: Final = "correction from earlier runs"

# Verified against real runs: benchmarks/memory. The constant covers scalars of tiny models.
_RELATIVE_ERROR: Final = 0.05
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
# reserved / allocated with expandable segments, as SimuMax measures it; up to 1.25 without.
_RESERVED_PER_ALLOCATED: Final = 1 / 0.94
# Fragments that even a full allocator cannot give back: an allowance, not a measurement.
_UNRELEASABLE: Final = 0.03
_SETTLED_WITHIN: Final = 4  # bytes that rounding can be off


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTraits:
    """What of a device decides how much lies around the allocated bytes."""

    emulated: bool
    compute_capability: str
    ranks: int


def estimate(peak: Peak, traits: DeviceTraits, *, correction: float = 1.0) -> MemoryEstimate:
    """Return the estimate for one device kind; ``correction`` multiplies what was predicted.

    An emulated device has neither allocator nor context: there all four are the allocated bytes,
    and a run survives on a device of ``required`` bytes.
    """
    expected = round(peak.allocated * correction)
    terms = peak.terms
    if expected != peak.allocated:
        learned = expected - peak.allocated
        terms = (*terms, MemoryTerm(name=CORRECTION_TERM, size_bytes=learned))
    allocated = _band(expected)
    around = _around(traits)
    if traits.emulated:
        reserved = device = required = allocated
    else:
        reserved = _shifted(allocated, _RESERVED_PER_ALLOCATED, 0)
        device = _shifted(reserved, 1.0, around)
        required = _shifted(allocated, 1 + _UNRELEASABLE, around)
    return MemoryEstimate(
        allocated=allocated,
        reserved=reserved,
        device=device,
        required=required,
        moment=peak.moment,
        terms=terms,
        mode="analytical",
    )


def required_bytes(allocated: int, traits: DeviceTraits, *, correction: float = 1.0) -> int:
    """Return ``estimate(...).required.high`` without the rest: what the search compares."""
    high = _band(round(allocated * correction)).high
    return high if traits.emulated else int(high * (1 + _UNRELEASABLE)) + _around(traits)


def room_bytes(capacity: int, traits: DeviceTraits, *, correction: float = 1.0) -> int:
    """Return the most allocated bytes that a device of ``capacity`` survives; -1 when none.

    The inverse of ``required_bytes``: solved for real numbers, then settled for whole bytes.
    """
    around = 0 if traits.emulated else _around(traits)
    beside = 1.0 if traits.emulated else 1 + _UNRELEASABLE
    high = (capacity - around) / beside - _ABSOLUTE_ERROR
    near = int(high / (1 + _RELATIVE_ERROR) / correction)
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


def _band(expected: int) -> Band:
    margin = int(expected * _RELATIVE_ERROR) + _ABSOLUTE_ERROR
    return Band(low=max(0, expected - margin), expected=expected, high=expected + margin)


def _shifted(band: Band, factor: float, constant: int) -> Band:
    low, expected, high = (
        int(size * factor) + constant for size in (band.low, band.expected, band.high)
    )
    return Band(low=low, expected=expected, high=high)
