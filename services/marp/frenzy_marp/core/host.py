"""What a plan takes beside its devices: the nodes' RAM, and disk for what it writes.

Follows the trainer (benchmarks/host): every rank builds the whole model on the host in the compute
precision; a checkpoint holds all weights, and for what is trained a master copy and both of Adam's
moments in fp32; a resuming rank reads its share of that into RAM.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from frenzy_marp.core.memory.shape import element_bytes
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.domain.plan import (
    HostEstimate,
    MemoryTerm,
    Offload,
    ParallelismPlan,
    Precision,
)
from frenzy_shared.units import GIB, MIB, format_bytes

# Python with torch, transformers and DeepSpeed (torch 2.13, CPU build).
_PROCESS: Final = 512 * MIB
# CUDA's libraries and the host's side of a context; a prior, nobody here has measured it.
_CUDA_PROCESS: Final = 3 * GIB
_SAVED_PER_TRAINED: Final = 12  # master copy and two moments in fp32


# Of what the host's AdamW (torch's, tensor by tensor) updates, bytes per trained parameter: master
# weight, gradient and two moments in fp32 all the time, and two temporaries in an update.
_OFFLOADED_STATES: Final = 16
_OFFLOADED_UPDATE: Final = 8
_UPDATED_AT_ONCE: Final = 1_000_000_000  # parameters: ZeRO-3's sub_group_size


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What all plans of a job in one precision have in common, bytes: weights, and saved states."""

    weights: int
    saved: int
    trained: int  # parameters
    element: int  # bytes of a weight

    @classmethod
    def of(cls, setup: TrainingSetup, precision: Precision) -> "HostNeeds":
        """Return the needs of a job."""
        model = setup.model
        return cls(
            model.num_parameters * element_bytes(precision),
            model.num_trained_parameters * _SAVED_PER_TRAINED,
            model.num_trained_parameters,
            element_bytes(precision),
        )

    def of_plan(self, plan: ParallelismPlan, *, emulated: bool, allocated: int) -> HostEstimate:
        """Return what a plan takes: as ``estimate``, and what it offloads."""
        found = self.estimate(plan.data, emulated=emulated, allocated=allocated)
        if plan.offload is Offload.NONE:
            return found
        ram = _terms(self._offloaded(plan))
        more = sum(term.size_bytes for term in ram)
        return replace(found, ram_bytes=found.ram_bytes + more, ram=found.ram + ram)

    def _offloaded(self, plan: ParallelismPlan) -> dict[str, int]:
        """Return the RAM of one rank's part (DeepSpeed 0.19: stage_1_and_2.py, stage3.py).

        In the compute precision the host has what it sends back, and gradients that accumulate.
        """
        own, element = -(-self.trained // plan.data), self.element
        accumulates = plan.gradient_accumulation_steps > 1
        updated = own if plan.zero_stage < 3 else min(own, _UPDATED_AT_ONCE)
        sent = 2 if plan.zero_stage < 3 and accumulates else 1
        parameters = plan.offload is Offload.PARAMETERS
        return {
            "offloaded optimizer states": own * _OFFLOADED_STATES,
            "the offloaded optimizer's update": updated * _OFFLOADED_UPDATE,
            "what goes to and from the device": sent * own * element,
            "offloaded weights": self.weights // plan.data if parameters else 0,
        }

    @lru_cache(maxsize=64)  # noqa: B019 - it holds numbers only, and kinds share answers
    def estimate(self, ranks: int, *, emulated: bool, allocated: int) -> HostEstimate:
        """Return the RAM of one rank at its highest, and the disk of a checkpoint and an export.

        The tensors of an emulated device, ``allocated`` bytes, are in RAM, the model among them.
        """
        ram = {
            "the process": _PROCESS if emulated else _CUDA_PROCESS,
            "the model while it is built": 0 if emulated else self.weights,
            "a share of the optimizer's states while resuming": self.saved // ranks,
            "tensors of the emulated device": allocated if emulated else 0,
        }
        disk = {
            "weights of a checkpoint": self.weights,
            "optimizer states of a checkpoint": self.saved,
            "the exported model": self.weights,
        }
        return HostEstimate(
            ram_bytes=sum(ram.values()),
            disk_bytes=sum(disk.values()),
            ram=_terms(ram),
            disk=_terms(disk),
        )


def shortage(host: HostEstimate, kind: KindSummary, devices: int) -> str:
    """Return by how much ranks that share a node outgrow its RAM, in words; "" when they do not."""
    ranks = min(devices, kind.node_counts[0])
    needed, there = ranks * host.ram_bytes, kind.host_memory_bytes
    if not there or needed <= there:
        return ""
    who = f"{ranks} ranks on one node need" if ranks > 1 else "a rank needs"
    return f"{who} {format_bytes(needed)} of RAM, a node of {kind.kind} has {format_bytes(there)}"


def _terms(named: dict[str, int]) -> tuple[MemoryTerm, ...]:
    return tuple(MemoryTerm(name=name, size_bytes=size) for name, size in named.items() if size)
