"""``frenzy simulate``: what policies would do with some jobs on some cluster."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from frenzy.cli import output
from frenzy.cli.options import Format, Output, Quiet
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_simulator.cluster import load_cluster, parse_cluster
from frenzy_simulator.compare import Bound, Comparison, as_json
from frenzy_simulator.metrics import Summary, summarize
from frenzy_simulator.outcome import Outcome
from frenzy_simulator.quotas import load_quotas
from frenzy_simulator.report.page import prepare, write_report
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.workload import Source

# 64 GPUs of three generations, as published evaluations of heterogeneous schedulers use.
_EXAMPLE: Final = {
    "nodes": [
        {"kind": "T4", "gpus": 4, "count": 6},
        {"kind": "RTX 2080 Ti", "gpus": 8, "count": 3},
        {"kind": "A100 SXM4 40GB", "gpus": 8, "count": 2},
    ]
}


def simulate(
    *,
    cluster: Annotated[
        Path | None,
        typer.Option(help="Cluster file (YAML); else 24 T4, 24 RTX 2080 Ti and 16 A100 40GB."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV (common columns, Helios, Acme, PAI) or JSON lines of job specs."),
    ] = None,
    workload: Annotated[
        str, typer.Option(help="Without --trace: philly, helios or newtrace, generated.")
    ] = "philly",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Repeat to compare. frenzy, has, fifo, srtf, srtf-preemptive, backfill, las; in "
            "the simulator only: sia, sia-informed, sia-rigid, gavel, manual (people choose GPUs)."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Stop after so many jobs.")] = None,
    per_hour: Annotated[
        float | None, typer.Option(help="Generated jobs per hour; else the workload's own.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    reference: Annotated[
        str, typer.Option(help="Kind that durations refer to; else the most frequent one.")
    ] = "",
    cap_gpus: Annotated[
        bool, typer.Option("--cap-gpus", help="Cut requests that exceed the cluster.")
    ] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Sort a trace by submission.")] = False,
    prediction_error: Annotated[
        float, typer.Option(help="Sigma of the error of speed per (job, kind, count).")
    ] = 0.0,
    early_end: Annotated[float, typer.Option(help="Share of jobs that end early.")] = 0.0,
    restart_factor: Annotated[float, typer.Option(help="Times the price of a restart.")] = 1.0,
    make_before_break: Annotated[
        bool,
        typer.Option("--make-before-break", help="Jobs get ready on idle GPUs while they train."),
    ] = False,
    node_mtbf: Annotated[
        float, typer.Option(help="Hours between failures of a node; 0: none.")
    ] = 0.0,
    quotas: Annotated[
        Path | None, typer.Option(help="Quotas (YAML): what PUT /projects takes, by project.")
    ] = None,
    bound: Annotated[
        Bound, typer.Option(help="Average that nobody can beat: lp is tighter and slower.")
    ] = Bound.FAST,
    report: Annotated[
        Path | None,
        typer.Option(help="Write a page: a folder (with PNGs where matplotlib is), or FILE.html."),
    ] = None,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
) -> None:
    """Compare scheduling policies on a trace or a generated workload.

    Needs no server. Every policy gets the same jobs, MARP's plans, restart costs and failures.
    Below the results stands an average completion time that no scheduler can beat.
    """
    scenario = Scenario(
        seed=seed,
        prediction_sigma=prediction_error,
        early_end_share=early_end,
        restart_factor=restart_factor,
        make_before_break=make_before_break,
        node_mtbf_s=node_mtbf * 3600,
    )
    nodes = load_cluster(cluster) if cluster is not None else parse_cluster(_EXAMPLE)
    source = Source(
        trace=trace,
        profile=workload,
        jobs=jobs,
        per_hour=per_hour,
        seed=seed,
        reference_kind=reference,
        cap_gpus=cap_gpus,
        sort=sort,
    )
    comparison = Comparison(
        jobs=source.read(summarize_kinds(nodes)),
        nodes=nodes,
        policies=policy or ("has", "frenzy"),
        scenario=scenario,
        projects=load_quotas(quotas) if quotas is not None else (),
    )
    if report is not None:
        prepare(report)
    outcomes = _run(comparison, quiet=quiet)
    bound_s = comparison.bound_avg_jct_s(bound)
    _write([summarize(one) for one in outcomes], bound_s, output_)
    if report is not None:
        files = write_report(report, outcomes, nodes, bound_s)
        output.err().print(f"report: {', '.join(map(str, files))}")


_COLUMNS: Final[Mapping[str, Callable[[Summary], object]]] = {
    "policy": lambda one: one.policy,
    "avg h": lambda one: _hours_of(one, one.avg_jct_s),
    "median h": lambda one: _hours_of(one, one.p50_jct_s),
    "p99 h": lambda one: _hours_of(one, one.p99_jct_s),
    "wait h": lambda one: _hours_of(one, one.avg_wait_s),
    "makespan h": lambda one: _hours_of(one, one.makespan_s),
    "used %": lambda one: f"{100 * one.utilization:.0f}",
    "stops": lambda one: one.preemptions,
    "oom": lambda one: one.oom,
    "cpu us": lambda one: f"{one.decision_cpu_us.mean:.0f}",
    "finished": lambda one: f"{one.finished}/{one.jobs}",
}
_WIDE: Final[Mapping[str, Callable[[Summary], object]]] = {
    "gpu h": lambda one: f"{one.gpu_hours:.1f}",
    "restart gpu h": lambda one: f"{one.restart_gpu_hours:.1f}",
    "unfair %": lambda one: f"{100 * one.unfairness:.0f}",
    "cpu p99 us": lambda one: f"{one.decision_cpu_us.p99:.0f}",
    "cycles": lambda one: one.cycles,
    "fit nowhere": lambda one: one.infeasible,
    "node failures": lambda one: one.node_failures,
}


def _write(summaries: Sequence[Summary], bound_s: float | None, output_: Format) -> None:
    if output_ is Format.NAME:
        output.out().print("\n".join(one.policy for one in summaries))
    elif output_ in (Format.JSON, Format.YAML):
        output.write_data(as_json(summaries, bound_s), output_)
    else:
        shown = {**_COLUMNS, **(_WIDE if output_ is Format.WIDE else {})}
        cells = {title: [get(one) for one in summaries] for title, get in shown.items()}
        output.out().print(output.table(cells))
        if bound_s is not None:
            output.out().print(f"no scheduler can beat an average of {_hours(bound_s)} h here")
    for one in summaries:
        if not one.finished:
            output.err().print(f"{one.policy}: no job finished, so there are no times")
        if one.unsolved:
            output.err().print(
                f"{one.policy}: the solver's time limit struck in {one.unsolved} of {one.cycles} "
                "decisions; its results are of what it had found by then"
            )


def _run(comparison: Comparison, *, quiet: bool) -> list[Outcome]:
    """Simulate with one bar of progress a policy, on stderr."""
    if quiet:
        return comparison.run()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"))
    with Progress(*columns, TimeElapsedColumn(), console=output.err(), transient=True) as bars:
        total = len(comparison.jobs)
        tasks = {name: bars.add_task(name, total=total) for name in comparison.policies}

        def moved(policy: str, done: int, jobs: int) -> None:
            bars.update(tasks[policy], completed=done, total=jobs)

        return comparison.run(moved)


def _hours_of(one: Summary, seconds: float) -> str | None:
    """Return a time of the jobs that finished; of none there is none."""
    return _hours(seconds) if one.finished else None


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3f}"
