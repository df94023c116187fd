"""``frenzy estimate``, and what ``frenzy plan --cluster`` needs: predictions without a server."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frenzy.cli import output, show, traced
from frenzy.cli.commands.estimate_cases import estimate_cases
from frenzy.cli.options import Format, Output
from frenzy.errors import FrenzyError
from frenzy.specs import read
from frenzy_shared.catalog.gpus import GpuModel, all_gpus, find_gpu
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    MemoryEstimate,
    PlanSet,
    Precision,
)
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.units import format_bytes

if TYPE_CHECKING:
    from frenzy.offline import Estimate


def estimate(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A preset, a config.json, or module:function of yours that makes a module.",
        ),
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="A job file (YAML) instead of MODEL.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="A GPU of the catalogue; else the smallest that fit are named."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="How many. [default: 1]")] = None,
    seq: Annotated[int | None, typer.Option(min=2, help="Tokens per sequence.")] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Sequences per GPU at once. [default: 1]")
    ] = None,
    accumulation: Annotated[
        int | None, typer.Option(min=1, help="Micro-batches per step. [default: 1]")
    ] = None,
    zero: Annotated[int | None, typer.Option(min=0, max=3, help="ZeRO stage. [default: 1]")] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Else the best one of the GPU.")
    ] = None,
    checkpointing: Annotated[
        ActivationCheckpointing | None, typer.Option(help="Recompute activations. [default: none]")
    ] = None,
    attention: Annotated[str | None, typer.Option(help="sdpa or eager. [default: sdpa]")] = None,
    cases: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Measured runs (JSON lines; - reads standard input) to predict instead of MODEL.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="analytical, or traced: in DeepSpeed's engine, with tensors without contents. "
            "Of --cases: frenzy-2024, analytical or learned. [default: analytical]"
        ),
    ] = None,
    output_: Output = Format.TABLE,
) -> None:
    """Predict the memory of training a model, by term and by moment. Needs no server.

    With -f the job file's pins count, and options change them.
    """
    if cases is not None:
        if model is not None or file is not None:
            raise InvalidSpec("--cases names the models itself: leave out MODEL and -f")
        estimate_cases(cases, mode or "analytical", output_)
        return
    card = None if gpu is None else _card(gpu)
    pins = {"gpus": gpus, "zero_stage": zero, "micro_batch_size": micro_batch}
    fields = {
        "sequence_length": seq,
        "precision": precision,
        "gradient_checkpointing": checkpointing,
        "attention": attention,
    }
    factory = traced.factory_of(model)
    chosen = traced.mode_of(mode, factory)
    named = model if factory is None else traced.stand_in(factory)
    spec = _spec(named, file, _given(fields), _given(pins), accumulation)
    needs_numpy("estimate")
    from frenzy import offline  # noqa: PLC0415 - needs numpy, which the bare client lacks

    if chosen == "traced":
        found = offline.traced_estimate(spec, card, factory)
    else:
        found = offline.estimate(spec, card)
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(_as_json(found), output_)
    else:
        output.out().print(_shown(found))


def plan_offline(spec: JobSpec, cluster: Path) -> tuple[PlanSet, dict[str, int]]:
    """Plan for the cluster that a file describes; return the plans and each kind's memory.

    Raises:
        FrenzyError: numpy is missing, the file is wrong, or the job cannot be planned at all.
    """
    needs_numpy("plan --cluster")
    from frenzy import offline  # noqa: PLC0415 - needs numpy, which the bare client lacks

    return offline.plan(spec, cluster)


def needs_numpy(command: str) -> None:
    """Refuse in the bare client, whose install has no numpy.

    Raises:
        FrenzyError: with the extra to install.
    """
    if find_spec("numpy") is None:
        raise FrenzyError(
            f"frenzy {command} computes on this machine and needs numpy",
            suggestions=["pip install 'frenzy[server]'"],
        )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _spec(
    model: str | dict[str, Any] | None,
    file: str | None,
    fields: dict[str, Any],
    pins: dict[str, Any],
    accumulation: int | None,
) -> JobSpec:
    """Make a job of a model, or change a job file's, so that options and global batch agree."""
    if (model is None) == (file is None):
        raise InvalidSpec("give either a MODEL or -f FILE")
    if file is None:
        base: dict[str, Any] = {"model": model, "data": "node:/any", "global_batch_size": 1}
        pins = {"micro_batch_size": 1, "gpus": 1, **pins}
    else:
        base = read(file).preview().model_dump(mode="json", exclude_none=True)
        pins = {**base.get("resources", {}), **pins}
    batch = base["global_batch_size"]
    if file is None or accumulation is not None:
        micro_batch = pins.get("micro_batch_size") or 1
        pins["micro_batch_size"] = micro_batch
        batch = micro_batch * (pins.get("gpus") or 1) * (accumulation or 1)
    return read({**base, **fields, "global_batch_size": batch, "resources": pins}).preview()


def _card(name: str) -> GpuModel:
    """Find a GPU as a driver calls it, or as people do: "a100 80gb" is enough if it is clear."""
    found = find_gpu(name)
    if found is not None:
        return found
    words = name.lower().replace("-", " ").split()
    alike = [gpu for gpu in all_gpus() if all(word in gpu.name.lower() for word in words)]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(gpu.name for gpu in alike or all_gpus())
    kind = "several GPUs match" if alike else "no GPU is called"
    raise InvalidSpec(f"{kind} {name[:80]!r}", suggestions=[f"one of: {names}"])


def _as_json(found: "Estimate") -> dict[str, Any]:
    spare = found.spare_bytes
    return {
        "parameters": found.parameters,
        "sequence_length": found.sequence_length,
        "plan": to_json(found.found.plan),
        "memory": to_json(found.found.memory),
        "frenzy_2024_bytes": found.published_bytes,
        "moments": [to_json(moment) for moment in found.found.moments],
        "gpu": found.card.name if found.card else None,
        "capacity_bytes": found.capacity_bytes,
        "fits": None if spare is None else spare >= 0,
        "smallest_gpus": [gpu.name for gpu in found.smallest],
    }


def _shown(found: "Estimate") -> RenderableType:
    memory = found.found.memory
    rows = Table.grid(padding=(0, 2))
    rows.add_row("model", f"{found.family}, {found.parameters:,} parameters")
    rows.add_row("run", Text(_run(found), style="bold"))
    rows.add_row("peak", show.estimate_bar(memory, found.capacity_bytes))
    rows.add_row("", show.estimate_terms(memory))
    rows.add_row("peak at", Text(f"{memory.moment} (per GPU, {memory.mode})"))
    if found.published_bytes is not None:
        published = format_bytes(found.published_bytes)
        rows.add_row("compare", f"{published} by the published formula (frenzy-2024)")
    parts = (rows, _quantities(memory), _moments(found), _verdict(found))
    return Group(*(piece for part in parts for piece in (part, Text())))


def _run(found: "Estimate") -> str:
    plan = found.found.plan
    checkpointed = plan.activation_checkpointing is ActivationCheckpointing.FULL
    parts = [
        f"{plan.data} x {found.card.name if found.card else 'any CUDA GPU'}",
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


def _moments(found: "Estimate") -> Table:
    moments, full = found.found.moments, found.found.memory.allocated.expected
    return output.table(
        {
            "moment": [moment.moment for moment in moments],
            "allocated": [format_bytes(moment.allocated) for moment in moments],
            "by term": [show.terms_bar(moment.terms, full) for moment in moments],
        }
    )


def _verdict(found: "Estimate") -> Text:
    card, spare = found.card, found.spare_bytes
    required = format_bytes(found.found.memory.required.high)
    if card is None:
        names = ", ".join(
            f"{gpu.name} ({format_bytes(gpu.memory_bytes)})" for gpu in found.smallest
        )
        return Text(f"smallest GPUs that hold it: {names or 'none of the catalogue'}")
    if spare is None:
        return Text(f"needs a GPU with {required}")
    if spare >= 0:
        return Text(f"fits {card.name}, {format_bytes(spare)} to spare", style="green")
    return Text(f"does not fit {card.name}: short of {format_bytes(-spare)}", style="red")
