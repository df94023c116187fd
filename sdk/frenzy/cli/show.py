"""How Frenzy's things look to a person: memory bars, plans, a job's numbers."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frenzy.cli.choice import in_order, placement_order, reason, rule
from frenzy.cli.output import printable, table
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import (
    HostEstimate,
    MemoryEstimate,
    MemoryTerm,
    PlanSet,
    RefusedPlan,
    ResourcePlan,
    SpeedEstimate,
)
from frenzy_shared.messages.http import JobView, NodeView
from frenzy_shared.units import format_bytes, format_duration

_BAR_WIDTH: Final = 36
_COLOURS: Final = ("blue", "cyan", "green", "yellow", "magenta", "red")
_STATE_COLOURS: Final = {
    JobState.RUNNING: "cyan",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
}


def state(value: JobState) -> Text:
    """Return a state in its colour."""
    return Text(value, style=_STATE_COLOURS.get(value, ""))


def duration(seconds: float) -> str:
    """Render seconds as people say them: 42 s, 12 min, 3.5 h, 2.1 d."""
    return format_duration(seconds)


def age(moment: datetime | None, now: datetime | None = None) -> str | None:
    """Render how long ago a moment was."""
    if moment is None:
        return None
    return duration(max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds()))


def devices(job: JobView) -> str | None:
    """Render where a job runs: ``2 x A100 on node-a, node-b``."""
    if not job.devices:
        return None
    nodes = ", ".join(dict.fromkeys(device.node for device in job.devices))
    return f"{len(job.devices)} x {job.kind} on {nodes}"


def plan_title(plan: ResourcePlan) -> str:
    """Render what a plan uses."""
    how = plan.parallelism
    parts = [
        f"{plan.device_count} x {plan.kind}",
        f"ZeRO-{how.zero_stage}",
        f"micro-batch {how.micro_batch_size}",
        f"accumulation {how.gradient_accumulation_steps}",
        str(how.precision),
    ]
    parts += [f"tensor {how.tensor}"] if how.tensor > 1 else []
    parts += [f"pipeline {how.pipeline}"] if how.pipeline > 1 else []
    parts += ["activation checkpointing"] if how.activation_checkpointing != "none" else []
    parts += ["chunked loss"] if how.loss != "full" else []
    return ", ".join(parts)


def memory_bar(plan: ResourcePlan, capacity_bytes: int | None) -> Text:
    """Draw a plan's predicted peak by term; the empty part is what the GPU has beyond it."""
    return estimate_bar(plan.memory, capacity_bytes)


def memory_terms(plan: ResourcePlan) -> Text:
    """List the terms of the peak in the bar's colours, largest first."""
    return estimate_terms(plan.memory)


def estimate_bar(memory: MemoryEstimate, capacity_bytes: int | None) -> Text:
    """Draw a predicted peak by term, with its numbers."""
    peak = memory.allocated
    bar = terms_bar(memory.terms, max(peak.expected, capacity_bytes or 0))
    bar.append(
        f" {format_bytes(peak.expected)} ({format_bytes(peak.low)} to {format_bytes(peak.high)})"
    )
    if capacity_bytes:
        bar.append(f" of {format_bytes(capacity_bytes)}")
    return bar


def terms_bar(terms: Sequence[MemoryTerm], full_bytes: int) -> Text:
    """Draw terms side by side; the whole bar stands for ``full_bytes``."""
    bar, total = Text(), 0
    for index, term in enumerate(term for term in terms if term.size_bytes > 0):
        total += term.size_bytes  # ends are rounded, not widths: the bar is never too long
        width = round(_BAR_WIDTH * total / max(full_bytes, 1)) - len(bar)
        bar.append("\N{FULL BLOCK}" * width, style=_COLOURS[index % len(_COLOURS)])
    bar.append("\N{LIGHT SHADE}" * max(0, _BAR_WIDTH - len(bar)), style="dim")
    return bar


def estimate_terms(memory: MemoryEstimate) -> Text:
    """List the terms of a peak in the bar's colours, largest first."""
    shown = list(enumerate(term for term in memory.terms if term.size_bytes > 0))
    less = [(0, term) for term in memory.terms if term.size_bytes < 0]  # what runs have taught
    line = Text()
    for index, term in [*sorted(shown, key=lambda pair: -pair[1].size_bytes), *less]:
        line.append("\N{BLACK SQUARE} ", style=_COLOURS[index % len(_COLOURS)])
        line.append(f"{term.name} {format_bytes(term.size_bytes)}  ")
    return line


def plans(
    found: PlanSet,
    capacities: dict[str, int],
    *,
    policy: str,
    limit: int | None = 3,
    chosen: ResourcePlan | None = None,
) -> RenderableType:
    """Show one plan in full (``chosen``, else the best), others, and what was refused.

    ``policy`` is the scheduler's; "" says nothing of what it will take. ``limit`` is how many plans
    are shown; ``None`` shows all.
    """
    parts: list[RenderableType] = []
    if found.plans:
        first = chosen or found.plans[0]
        parts += [plan_block(first, capacities.get(first.kind)), Text()]
        others = [plan for plan in found.plans if plan.id != first.id]
        tried = placement_order(found.plans, capacities)[0]
        if in_order(policy) and chosen is None and tried.id != first.id:
            others = [tried, *(plan for plan in others if plan.id != tried.id)]
            text = f"the scheduler tries first: {plan_title(tried)}"
            parts += [Text(f"{text} ({reason(found, tried, capacities, policy)})"), Text()]
        if others:
            shown = others if limit is None else others[: limit - 1]
            parts += [Text("other plans", style="bold")]
            parts += [Text(f"({rule(policy)})", style="dim")] if rule(policy) else []
            parts += [_plan_table(shown, wide=limit is None)]
            more = len(others) - len(shown)
            parts += [Text(f"{more} more: frenzy plan -o wide", style="dim")] if more else []
            parts += [Text()]
    else:
        parts.append(Text(printable(found.message) or "no plan fits", style="bold red"))
    if found.refused:
        parts += [Text("refused", style="bold"), _refused_table(found.refused)]
    return Group(*parts)


def plan_block(plan: ResourcePlan, capacity_bytes: int | None) -> RenderableType:
    """Show one plan with its memory bar, time and reason."""
    rows = Table.grid(padding=(0, 2))
    rows.add_row("plan", Text(plan_title(plan), style="bold"))
    rows.add_row("memory", memory_bar(plan, capacity_bytes))
    rows.add_row("", memory_terms(plan))
    rows.add_row("peak at", Text(f"{plan.memory.moment} (per GPU, {provenance(plan.memory)})"))
    if plan.oom_probability is not None:
        rows.add_row("risk", f"{chance(plan.oom_probability)} to run out of memory")
    if plan.host is not None:
        rows.add_row("host", host_line(plan.host))
    speed = plan.speed
    rows.add_row(
        "time",
        f"about {duration(speed.total_s)}, {speed.tokens_per_s:,.0f} tokens/s, "
        f"{speed.device_hours:.3g} GPU-hours{_unknown_length(speed)}",
    )
    if plan.why:
        rows.add_row("why", Text(printable(plan.why)))
    return rows


def provenance(memory: MemoryEstimate) -> str:
    """Say where a prediction comes from."""
    if not memory.runs:
        return memory.mode
    return f"{memory.mode} from {memory.runs} run{'s' if memory.runs > 1 else ''}"


def chance(probability: float) -> str:
    """Render a probability; nobody can tell less than one in a thousand."""
    if probability < 0.001:
        return "< 0.1 %"
    return f"{100 * probability:.2g} %" if probability < 0.999 else "> 99.9 %"


def host_line(host: HostEstimate) -> str:
    """Render what a plan takes beside its GPUs."""
    ram, disk = format_bytes(host.ram_bytes), format_bytes(host.disk_bytes)
    return f"{ram} of RAM per rank, {disk} of disk for a checkpoint and the exported model"


def ranks(job: JobView) -> RenderableType:
    """Compare predicted and observed peaks, rank by rank."""
    predicted = job.plan.memory.allocated.expected if job.plan else None
    rows = job.ranks
    return table(
        {
            "rank": [row.rank for row in rows],
            "where": [_where(job, row.rank) for row in rows],
            "exit": [row.exit_code for row in rows],
            "predicted peak": [format_bytes(predicted) if predicted else None for _ in rows],
            "observed peak": [_bytes(row.peak_allocated_bytes) for row in rows],
            "error": [error_percent(predicted, row.peak_allocated_bytes) for row in rows],
            "loss": [loss_change(row.loss_first, row.loss_last) for row in rows],
            "tokens/s": [_number(row.tokens_per_second) for row in rows],
        }
    )


def error_percent(predicted: int | None, observed: int | None) -> str | None:
    """Render how far a prediction was from the measurement, signed."""
    if not predicted or not observed:
        return None
    return f"{100 * (predicted - observed) / observed:+.1f} %"


def loss_change(first: float | None, last: float | None) -> str | None:
    """Render how the loss went."""
    if first is None or last is None:
        return None
    return f"{first:.3f} -> {last:.3f}"


def capacities(nodes: Sequence[NodeView]) -> dict[str, int]:
    """Return the smallest memory of each kind of GPU."""
    found: dict[str, int] = {}
    for node in nodes:
        for device in node.devices:
            known = found.get(device.kind, device.memory_bytes)
            found[device.kind] = min(known, device.memory_bytes)
    return found


def gpu_summary(node: NodeView) -> str:
    """Render a node's GPUs: ``2 x A100 (40.0 GiB)``."""
    ordered = sorted(node.devices, key=lambda device: (device.kind, device.memory_bytes))
    groups = groupby(ordered, key=lambda device: (device.kind, device.memory_bytes))
    return ", ".join(
        f"{len(list(group))} x {kind} ({format_bytes(size)})" for (kind, size), group in groups
    )


def _plan_table(found: Sequence[ResourcePlan], *, wide: bool) -> Table:
    risks = [plan.oom_probability for plan in found]
    risk = {"P(OOM)": [None if one is None else chance(one) for one in risks]} if wide else {}
    return table(
        {
            "plan": [plan_title(plan) for plan in found],
            "peak": [format_bytes(plan.memory.allocated.expected) for plan in found],
            **risk,
            "time": [duration(plan.speed.total_s) + _unknown_length(plan.speed) for plan in found],
            "why": [plan.why for plan in found],
        }
    )


def _unknown_length(speed: SpeedEstimate) -> str:
    """Say of how many steps a time is, where nobody knows how long the job is."""
    return f" for {speed.nominal_steps:,} steps" if speed.nominal_steps else ""


def _refused_table(refused: Sequence[RefusedPlan]) -> Table:
    return table(
        {
            "option": [item.option for item in refused],
            "reason": [item.reason for item in refused],
            "because of": [item.pin for item in refused],
        }
    )


def _where(job: JobView, rank: int) -> str | None:
    if rank >= len(job.devices):
        return None
    return f"{job.devices[rank].node}/{job.devices[rank].device}"


def _bytes(count: int | None) -> str | None:
    return None if count is None else format_bytes(count)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"
