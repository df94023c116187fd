"""From the allocated peak to what the allocator reserves, the device shows, and a run requires."""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.prediction import Moment, spread_bytes

GIB: Final = float(2**30)

_EXPANDABLE_SLACK: Final = 1.03
_SEGMENT_SLACK: Final = 1.08
_RETRY_SLACK: Final = 1.02  # what cannot be released although the allocator retries
_USABLE: Final = 0.97  # of the capacity, before the allocator has to give blocks back
_COMMUNICATOR: Final = 0.8 * GIB
_OLD_CARDS: Final = ("V100", "T4", "TITAN", "RTX2080", "P100")
_TRANSIENT: Final = frozenset({"logits and loss", "work of a block", "update"})


@dataclass(frozen=True, slots=True)
class Levels:
    """Expected bytes of each metric, and the moment that makes the allocated peak."""

    allocated: float
    reserved: float
    device: float
    required: float
    moment: Moment


def levels(run: Run, moments: tuple[Moment, ...]) -> Levels:
    """Return the expected bytes by metric."""
    moment = max(moments, key=lambda candidate: candidate.total)
    outside = context_bytes(run) + communicator_bytes(run)
    reserved = _reserved(run, moments, moment.total, outside)
    return Levels(
        allocated=moment.total,
        reserved=reserved,
        device=reserved + outside,
        required=moment.total * _RETRY_SLACK + outside,
        moment=moment,
    )


def context_bytes(run: Run) -> float:
    """Return the CUDA context and loaded kernels, bytes.

    0.5 GiB with kernels loaded when first used (CUDA 11.7, torch 2), 1.5 GiB before; cards older
    than that are taken to run older software where no version is stated.
    """
    version = run.training.torch_version
    old_card = run.card.name.startswith(_OLD_CARDS) and not version.startswith("2")
    return (1.5 if old_card or version.startswith("1.") else 0.5) * GIB


def communicator_bytes(run: Run) -> float:
    """Return NCCL's buffers: one communicator for each kind of parallelism that is used."""
    parallel = run.parallelism
    kinds = (parallel.data, parallel.tensor, parallel.pipeline, parallel.context, parallel.expert)
    return _COMMUNICATOR * sum(degree > 1 for degree in kinds)


def _reserved(run: Run, moments: tuple[Moment, ...], allocated: float, outside: float) -> float:
    """Return what the caching allocator holds, at most what the card has.

    Blocks freed at one moment are cached by size: the logits' segments stay while blocks run
    backward. A compiled loss or none at all leaves little of that.
    """
    training = run.training
    spread = spread_bytes(moments)
    flat = training.loss_compiled or (
        training.compiled and training.loss is word.LossKernel.LINEAR_FUSED
    )
    held = allocated + (0.35 if flat else 1.0) * (spread - allocated)
    held *= _EXPANDABLE_SLACK if training.expandable_segments else _SEGMENT_SLACK
    if training.packing is word.Packing.DYNAMIC:
        held = max(_with_other_sizes(run, moment) for moment in moments)
    if run.card.capacity_gib is None:
        return held
    usable = run.card.capacity_gib * GIB * _USABLE - outside
    return max(allocated * _RETRY_SLACK, min(held, usable))


def _with_other_sizes(run: Run, moment: Moment) -> float:
    """Return a moment with blocks cached for other lengths, where every batch has its own.

    Measured on one public grid (512 to 8192 tokens, 1.8B to 34B): 2.6 times the temporaries at
    512 tokens, 1.0 times at 8192, since few samples are that long.
    """
    temporary = sum(size for name, size in moment.terms if name in _TRANSIENT)
    if moment.name == "optimizer step":
        temporary = 0.0  # sizes of parameters never change
    cached = temporary * 2.9 / (1 + run.training.sequence_length / 4000)
    return (moment.total + cached) * _RETRY_SLACK
