"""Why an option was refused, with the numbers and, where one is to blame, the pin."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Loss,
    MemoryEstimate,
    Offload,
    ParallelismPlan,
    RefusedPlan,
)
from frenzy_shared.units import format_bytes

# A pin's name in the specification, and the pins without it; the likeliest culprit first.
_RELAXATIONS: Final[tuple[tuple[str, Callable[[Pins], Pins]], ...]] = (
    ("resources.gpus", lambda pins: replace(pins, device_count=None)),
    ("resources.max_gpus", lambda pins: replace(pins, max_devices=None)),
    ("resources.offload", lambda pins: replace(pins, offload=None)),
    ("resources.zero_stage", lambda pins: replace(pins, zero_stage=None)),
    ("loss", lambda pins: replace(pins, loss=None)),
    ("resources.micro_batch_size", lambda pins: replace(pins, micro_batch_size=None)),
    ("gradient_checkpointing", lambda pins: replace(pins, activation_checkpointing=None)),
    ("precision", lambda pins: replace(pins, precision=None)),
)


_UNPLANNED: Final = {
    "tensor": (
        "tensor parallelism is not planned in this release (frenzy estimate --mode traced tells "
        "what it takes)"
    ),
    "pipeline": "pipeline parallelism is not in this release",
}


def relaxations(pins: Pins) -> Iterator[tuple[str, Pins]]:
    """Yield each pin that is set by name, with the pins as they would be without it."""
    for name, relax in _RELAXATIONS:
        relaxed = relax(pins)
        if relaxed != pins:
            yield name, relaxed


def pinned(pins: Pins) -> tuple[str, ...]:
    """Return the names of all pins that are set."""
    others = {
        "resources.kinds": pins.kinds,
        "resources.exclude_kinds": pins.exclude_kinds,
        "resources.gpu_memory": pins.min_device_memory_bytes or pins.max_device_memory_bytes,
        "resources.tensor": pins.tensor,
        "resources.pipeline": pins.pipeline,
    }
    named = tuple(name for name, value in others.items() if value)
    return (*named, *(name for name, _ in relaxations(pins)))


def unsupported_degrees(pins: Pins) -> tuple[RefusedPlan, ...]:
    """Refuse tensor and pipeline degrees above 1, which this release does not run."""
    found: list[RefusedPlan] = []
    for name, value in (("tensor", pins.tensor), ("pipeline", pins.pipeline)):
        if value not in (None, 1):
            found.append(
                RefusedPlan(
                    kind="",
                    device_count=value or 0,
                    option=f"{name} parallelism {value}",
                    reason=f"{_UNPLANNED[name]}; use 1 or leave it out",
                    pin=f"resources.{name}",
                )
            )
    return tuple(found)


def missing_kinds(kinds: tuple[KindSummary, ...], pins: Pins) -> Iterator[RefusedPlan]:
    """Name pinned kinds that no node has."""
    present = [kind.kind for kind in kinds]
    for name in pins.kinds:
        if name not in present:
            yield RefusedPlan(
                kind=name,
                device_count=0,
                option=name,
                reason=f"no node has this kind; present: {', '.join(present) or 'none'}",
                pin="resources.kinds",
            )


def excluded(kind: KindSummary, pins: Pins) -> RefusedPlan | None:
    """Refuse a kind that the pins leave out, before any memory is computed."""
    size = kind.memory_bytes
    pin = reason = ""
    if pins.kinds and kind.kind not in pins.kinds:
        pin, reason = "resources.kinds", f"not among the pinned kinds: {', '.join(pins.kinds)}"
    elif kind.kind in pins.exclude_kinds:
        pin, reason = "resources.exclude_kinds", "the job's specification excludes it"
    elif pins.min_device_memory_bytes is not None and size < pins.min_device_memory_bytes:
        pin = "resources.gpu_memory"
        reason = (
            f"has {format_bytes(size)}, at least "
            f"{format_bytes(pins.min_device_memory_bytes)} is asked for"
        )
    elif pins.max_device_memory_bytes is not None and size > pins.max_device_memory_bytes:
        pin = "resources.gpu_memory"
        reason = (
            f"has {format_bytes(size)}, at most "
            f"{format_bytes(pins.max_device_memory_bytes)} is asked for"
        )
    if not pin:
        return None
    return RefusedPlan(kind=kind.kind, device_count=0, option=kind.kind, reason=reason, pin=pin)


def no_precision(kind: KindSummary, pins: Pins) -> RefusedPlan:
    """Refuse a kind that does not compute in the pinned precision."""
    return RefusedPlan(
        kind=kind.kind,
        device_count=0,
        option=f"{kind.kind}, {pins.precision}",
        reason=f"does not compute in {pins.precision}; leave precision out or use fp32",
        pin="precision",
    )


def no_split(setup: TrainingSetup, kind: KindSummary, gpu: GpuModel, pins: Pins) -> RefusedPlan:
    """Refuse a device count or micro-batch that cannot make up the global batch."""
    batch = setup.global_batch_size
    if pins.device_count is not None and pins.device_count > kind.total:
        reason = f"the cluster has {kind.total} of them"
        pin = "resources.gpus"
    elif pins.device_count is not None and pins.device_count > 1 and not gpu.collectives:
        reason = "instances of a partitioned GPU cannot train together"
        pin = "resources.gpus"
    elif pins.device_count is not None and batch % pins.device_count:
        reason = f"global batch {batch} cannot be split evenly over {pins.device_count} devices"
        pin = "resources.gpus"
    else:
        count = pins.device_count or 1
        reason = (
            f"micro-batch {pins.micro_batch_size} does not divide the "
            f"{batch // count} sequences of a device (global batch {batch})"
        )
        pin = "resources.micro_batch_size"
    devices = pins.device_count or 1
    return RefusedPlan(
        kind=kind.kind,
        device_count=devices,
        option=f"{devices} x {kind.kind}",
        reason=reason,
        pin=pin,
    )


def too_large(
    kind: KindSummary, plan: ParallelismPlan, memory: MemoryEstimate, pin: str
) -> RefusedPlan:
    """Refuse the closest option of a kind: it needs more than the device has."""
    required = memory.required.high
    largest = max(memory.terms, key=lambda term: term.size_bytes)
    unpinned = f"; without {pin} it would fit" if pin else ""
    return RefusedPlan(
        kind=kind.kind,
        device_count=plan.data,
        option=describe(kind, plan),
        reason=(
            f"needs {format_bytes(required)} at {memory.moment}, the device has "
            f"{format_bytes(kind.memory_bytes)}; the largest part is {largest.name} with "
            f"{format_bytes(largest.size_bytes)}{unpinned}"
        ),
        pin=pin,
        shortfall_bytes=required - kind.memory_bytes,
    )


def no_room(kind: KindSummary, plan: ParallelismPlan, shortage: str, pin: str) -> RefusedPlan:
    """Refuse a plan that offloads more than its nodes have RAM for."""
    return RefusedPlan(
        kind=kind.kind,
        device_count=plan.data,
        option=describe(kind, plan),
        reason=f"offloads to RAM, but {shortage}",
        pin=pin,
    )


def describe(kind: KindSummary, plan: ParallelismPlan) -> str:
    """Return a plan in words, for example "2 x T4, ZeRO-3, micro-batch 1, fp16"."""
    chunked = ", chunked loss" if plan.loss is Loss.CHUNKED else ""
    recomputed = (
        ", checkpointed" if plan.activation_checkpointing is ActivationCheckpointing.FULL else ""
    )
    offloaded = {
        Offload.NONE: "",
        Offload.OPTIMIZER: ", optimizer offloaded",
        Offload.PARAMETERS: ", optimizer and weights offloaded",
    }[plan.offload]
    return (
        f"{plan.data} x {kind.kind}, ZeRO-{plan.zero_stage}, micro-batch "
        f"{plan.micro_batch_size}, {plan.precision}{recomputed}{chunked}{offloaded}"
    )
