"""What the scheduler decides: which devices a job gets, or why it gets none."""

from dataclasses import dataclass

from frenzy_shared.domain.ids import DeviceId, NodeId, PlanId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRef:
    """One device of one node, as it was when the decision was made.

    ``epoch`` is the node's registration epoch: a claim with an old epoch is refused.
    """

    node: NodeId
    device: DeviceId
    epoch: int

    @property
    def key(self) -> str:
        """Return the field of the store's ownership table."""
        return f"{self.node}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Devices for one job, in rank order: ``devices[r]`` runs rank ``r``."""

    plan: PlanId
    kind: str
    devices: tuple[DeviceRef, ...]

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Return the nodes in order of their first rank, each once."""
        return tuple(dict.fromkeys(ref.node for ref in self.devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaceable:
    """Why a job cannot start now: one dominant reason, a sentence with numbers, the near miss."""

    reason: str  # PendingReason value
    message: str
    nearest: str = ""
