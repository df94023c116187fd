"""``frenzy estimate``, and what ``frenzy plan --cluster`` needs: predictions without a server."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from frenzy import specs
from frenzy.cli import estimated, output, traced
from frenzy.cli.commands.estimate_cases import estimate_cases
from frenzy.cli.options import Format, Output, Url
from frenzy.client import Client
from frenzy.errors import FrenzyError
from frenzy_shared.domain.plan import ActivationCheckpointing, PlanSet, Precision
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.installing import install
from frenzy_shared.messages.estimate import EstimateRequest, EstimateView
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.trace import Factory


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
            help="analytical; traced: in DeepSpeed's engine, with tensors without contents; "
            "traced-layers: one layer so, the rest by formula. "
            "Of --cases: frenzy-2024, analytical or learned. [default: analytical]"
        ),
    ] = None,
    server: Annotated[
        bool,
        typer.Option(
            "--server", help="Ask the server, which knows its nodes and what finished runs taught."
        ),
    ] = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Predict the memory of training a model, by term and by moment. Needs no server.

    With -f the job file's pins count, and options change them.
    """
    if cases is not None:
        if model is not None or file is not None:
            raise InvalidSpec("--cases names the models itself: leave out MODEL and -f")
        estimate_cases(cases, mode or "analytical", output_)
        return
    factory = traced.factory_of(model)
    chosen = traced.mode_of(mode, factory)
    changes = {
        "gpus": gpus,
        "zero_stage": zero,
        "micro_batch_size": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "sequence_length": seq,
        "precision": precision,
        "gradient_checkpointing": checkpointing,
        "attention": attention,
    }
    if server and chosen in traced.TRACED:
        raise InvalidSpec(
            "the server estimates from the formulas, with what its finished runs taught; it traces "
            "nothing" + (f", and cannot run {model}" if factory is not None else ""),
            suggestions=["leave --server out to trace here, or --mode to ask the server"],
        )
    request = _request(model, file, gpu, factory, changes)
    found = _asked(request, url) if server else _computed(request, chosen, factory)
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(found), output_)
    else:
        output.out().print(estimated.shown(found))


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
            suggestions=[install("server")],
        )


def _request(
    model: str | None,
    file: str | None,
    gpu: str | None,
    factory: Factory | None,
    changes: dict[str, Any],
) -> EstimateRequest:
    if (model is None) == (file is None):
        raise InvalidSpec("give either a MODEL or -f FILE")
    given = {name: value for name, value in changes.items() if value is not None}
    source: specs.SpecSource = (
        specs.read(file)
        if file is not None
        else specs.model_alone(model if factory is None else traced.stand_in(factory))
    )
    if file is None:
        given = {**specs.ALONE, **given}
    spec, overrides = specs.exact(source, given)
    return EstimateRequest(spec=spec, gpu=gpu, overrides=overrides)


def _computed(request: EstimateRequest, mode: str, factory: Factory | None) -> EstimateView:
    needs_numpy("estimate")
    from frenzy import offline  # noqa: PLC0415 - needs numpy, which the bare client lacks

    if mode in traced.TRACED:
        return offline.traced_estimate(request, factory, mode)
    return offline.estimate(request)


def _asked(request: EstimateRequest, url: str | None) -> EstimateView:
    changes = request.overrides.model_dump(exclude_none=True)
    with Client(url) as client:
        return client.estimate(request.spec, gpu=request.gpu, **changes)
