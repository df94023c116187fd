"""From the allocated peak to what the allocator reserves, the device shows, and a run requires."""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.prediction import RETAINED, Moment, spread_bytes

GIB: Final = float(2**30)

_EXPANDABLE_SLACK: Final = 1.03
_SEGMENT_SLACK: Final = 1.08
_PINNED_SLACK: Final = 0.2  # inputs that stay between freed blocks leave holes of this share
_RETRY_SLACK: Final = 1.02  # what cannot be released although the allocator retries
# The same, by what is held: states are few large blocks that stay where they are; what comes and
# goes in every step leaves holes.
_COUNTED_SLACK: Final = 1.003
_KERNELS_SLACK: Final = 1.03
_USABLE: Final = 0.97  # of the capacity, before the allocator has to give blocks back
_FIRST_COMMUNICATOR: Final = 0.8 * GIB
_COMMUNICATOR: Final = 0.5 * GIB  # each further one
# One standard error as a share of what it is of: states are counted, kernels' temporaries and
# saved values are formulas, what is cached or outside torch is a rule of thumb; the allocator's
# segments are whole ones. Fitted once on the public cases, by non-negative least squares.
_COUNTED_ERROR: Final = 0.01
_KERNELS_ERROR: Final = 0.08
_CACHED_ERROR: Final = 0.20
_OUTSIDE_ERROR: Final = 0.20
_ALLOCATOR_ERROR: Final = 0.03
_OLD_CARDS: Final = ("V100", "T4", "TITAN", "RTX2080", "P100")
_PIPELINE_ENGINE: Final = frozenset({word.Framework.DEEPSPEED, word.Framework.MEGATRON_DEEPSPEED})
_PIPELINE_GROUPS: Final = 3  # more than the one of the pipeline
_COUNTED: Final = frozenset({"weights", "master weights", "optimizer", "gradients", "update"})
_TRANSIENT: Final = frozenset({"logits and loss", "work of a block", "update"})


@dataclass(frozen=True, slots=True)
class Levels:
    """Expected bytes of each metric, and the moment that makes the allocated peak.

    The scales are how far off one standard error may be, as a share of the metric.
    """

    allocated: float
    reserved: float
    device: float
    required: float
    moment: Moment
    allocated_scale: float
    reserved_scale: float
    device_scale: float
    required_scale: float


def levels(run: Run, moments: tuple[Moment, ...]) -> Levels:
    """Return the expected bytes by metric."""
    moment = max(moments, key=lambda candidate: candidate.total)
    outside = context_bytes(run) + communicator_bytes(run)
    reserved = _reserved(run, moments, moment.total, outside)
    counted = sum(size for name, size in moment.terms if name in _COUNTED)
    kernels = moment.total - counted
    required = counted * _COUNTED_SLACK + kernels * _KERNELS_SLACK + outside
    inside = _COUNTED_ERROR * counted + _KERNELS_ERROR * kernels
    cached = _CACHED_ERROR * (reserved - moment.total)
    around = _OUTSIDE_ERROR * outside
    device = reserved + outside
    return Levels(
        allocated=moment.total,
        reserved=reserved,
        device=device,
        required=required,
        moment=moment,
        allocated_scale=inside / moment.total,
        reserved_scale=_ALLOCATOR_ERROR + (inside + cached) / reserved,
        device_scale=_ALLOCATOR_ERROR + (inside + cached + around) / device,
        required_scale=(inside + around) / required,
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
    """Return NCCL's buffers: one communicator for each kind of parallelism that is used.

    DeepSpeed's pipeline engine makes more: one with each neighbour, one of the whole model for
    the norm of the gradients, one of the stages that share the embedding.
    """
    parallel = run.parallelism
    kinds = (parallel.data, parallel.tensor, parallel.pipeline, parallel.context, parallel.expert)
    count = sum(degree > 1 for degree in kinds)
    if count == 0:
        return 0.0
    if parallel.pipeline > 1 and run.training.framework in _PIPELINE_ENGINE:
        count += _PIPELINE_GROUPS
    return _FIRST_COMMUNICATOR + _COMMUNICATOR * (count - 1)


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
    held += _PINNED_SLACK * max(dict(moment.terms).get(RETAINED, 0.0) for moment in moments)
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
