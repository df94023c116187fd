"""How an estimate of one exact configuration looks to a person."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frenzy.cli import output, show
from frenzy_shared.catalog.gpus import find_gpu
from frenzy_shared.domain.plan import ActivationCheckpointing, MemoryEstimate
from frenzy_shared.messages.estimate import EstimateView
from frenzy_shared.units import format_bytes


def shown(found: EstimateView) -> RenderableType:
    """Show an estimate: what was asked, the peak by term, all quantities and moments, a verdict."""
    memory = found.memory
    rows = Table.grid(padding=(0, 2))
    rows.add_row("model", f"{found.family}, {found.parameters:,} parameters")
    rows.add_row("run", Text(_run(found), style="bold"))
    rows.add_row("peak", show.estimate_bar(memory, found.capacity_bytes))
    rows.add_row("", show.estimate_terms(memory))
    rows.add_row("peak at", Text(f"{memory.moment} (per GPU, {show.provenance(memory)})"))
    if found.frenzy_2024_bytes is not None:
        published = format_bytes(found.frenzy_2024_bytes)
        rows.add_row("compare", f"{published} by the published formula (frenzy-2024)")
    if found.host is not None:
        rows.add_row("host", show.host_line(found.host))
    if found.speed is not None:
        step = f"{found.speed.step_s:.3g} s a step, {found.speed.tokens_per_s:,.0f} tokens/s"
        rows.add_row("speed", step)
    if found.pinned:
        rows.add_row("pinned", f"by you: {', '.join(found.pinned)}")
    parts = (rows, _quantities(memory), _moments(found), _verdict(found))
    return Group(*(piece for part in parts for piece in (part, Text())))


def _run(found: EstimateView) -> str:
    plan = found.plan
    checkpointed = plan.activation_checkpointing is ActivationCheckpointing.FULL
    parts = [
        f"{plan.data} x {found.gpu or 'any CUDA GPU'}",
        f"ZeRO-{plan.zero_stage}",
        f"micro-batch {plan.micro_batch_size}",
        f"accumulation {plan.gradient_accumulation_steps}",
        f"{found.sequence_length} tokens",
        str(plan.precision),
        found.attention,
    ]
    return ", ".join([*parts, "activation checkpointing"] if checkpointed else parts)


def _quantities(memory: MemoryEstimate) -> Table:
    bands = {
        "allocated": (memory.allocated, "torch's max_memory_allocated"),
        "reserved": (memory.reserved, "the allocator's, with expandable segments"),
        "device": (memory.device, "what nvidia-smi shows"),
        "required": (memory.required, "the smallest GPU on which it survives"),
    }
    return output.table(
        {
            "per GPU": list(bands),
            "low": [format_bytes(band.low) for band, _ in bands.values()],
            "expected": [format_bytes(band.expected) for band, _ in bands.values()],
            "high": [format_bytes(band.high) for band, _ in bands.values()],
            "what": [meaning for _, meaning in bands.values()],
        }
    )


def _moments(found: EstimateView) -> Table:
    full = found.memory.allocated.expected
    return output.table(
        {
            "moment": [moment.moment for moment in found.moments],
            "allocated": [format_bytes(moment.allocated) for moment in found.moments],
            "by term": [show.terms_bar(moment.terms, full) for moment in found.moments],
        }
    )


def _verdict(found: EstimateView) -> Text:
    required = format_bytes(found.memory.required.high)
    if found.gpu is None:
        cards = [gpu for gpu in map(find_gpu, found.smallest_gpus) if gpu is not None]
        names = ", ".join(f"{gpu.name} ({format_bytes(gpu.memory_bytes)})" for gpu in cards)
        return Text(f"smallest GPUs that hold it: {names or 'none of the catalogue'}")
    if found.capacity_bytes is None:
        return Text(f"needs a GPU with {required}")
    spare = found.capacity_bytes - found.memory.required.high
    risk = "" if found.oom_probability is None else f", {show.chance(found.oom_probability)} risk"
    if spare >= 0:
        return Text(f"fits {found.gpu}, {format_bytes(spare)} to spare{risk}", style="green")
    return Text(f"does not fit {found.gpu}: short of {format_bytes(-spare)}{risk}", style="red")
