"""How plans, pins and nodes are named in answers to people."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.plan import ResourcePlan


def plan_title(plan: ResourcePlan) -> str:
    """Name a plan by what it uses, and by its id."""
    how = plan.parallelism
    size = f"ZeRO-{how.zero_stage}, micro-batch {how.micro_batch_size}"
    return f"{plan.device_count} x {plan.kind}, {size} (plan {plan.id})"


def without_pin(pin: str, value: str, plan: ResourcePlan) -> str:
    """Say what a plan does otherwise than a pin of ``value`` asks for."""
    say = _WITHOUT.get(pin)
    return say(value, plan) if say is not None else f"without {pin} ({value})"


def devices_of(node: NodeRecord) -> str:
    """List a node's devices by kind."""
    kinds = Counter(device.kind for device in node.devices)
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))


def _gpus(plan: ResourcePlan) -> str:
    return f"{plan.device_count} GPU{'' if plan.device_count == 1 else 's'}"


_WITHOUT: Final[Mapping[str, Callable[[str, ResourcePlan], str]]] = {
    "resources.gpus": lambda value, plan: f"with {_gpus(plan)} instead of {value}",
    "resources.max_gpus": lambda value, plan: f"with {_gpus(plan)} instead of at most {value}",
    "resources.kinds": lambda _, plan: f"if kind {plan.kind} were allowed",
    "resources.exclude_kinds": lambda _, plan: f"if kind {plan.kind} were not excluded",
    "resources.gpu_memory": lambda value, plan: f"if gpu_memory ({value}) allowed {plan.kind}",
    "resources.micro_batch_size": lambda value, plan: (
        f"with micro-batch {plan.parallelism.micro_batch_size} instead of {value}"
    ),
    "resources.zero_stage": lambda value, plan: (
        f"with ZeRO-{plan.parallelism.zero_stage} instead of ZeRO-{value}"
    ),
    "loss": lambda value, plan: f"with loss {plan.parallelism.loss} instead of {value}",
    "precision": lambda value, plan: f"with {plan.parallelism.precision} instead of {value}",
    "gradient_checkpointing": lambda value, plan: (
        f"with activation checkpointing {plan.parallelism.activation_checkpointing} "
        f"instead of {value}"
    ),
}
