"""What a chaos run did and found: as data, and as a page for people."""

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import record
from tests.fault.load import Load
from tests.support.history import History, check
from tests.support.installed import Installed
from tests.support.watch import Watch

from frenzy_shared.units import format_bytes

_RIGHT = frozenset({"SUCCEEDED"})
_SAME_LOSS = 1e-3  # relative: trainings that were interrupted end where undisturbed ones do
_POINTS = 60  # of a time series in the report


@dataclass(kw_only=True)
class Result:
    """A run's figures, and everything that was wrong."""

    figures: dict[str, Any]
    violations: list[str]
    failures: list[str]

    @property
    def wrong(self) -> bool:
        return bool(self.violations or self.failures)

    def summary(self) -> str:
        left_out = {"samples", "kept"}
        shown = {k: v for k, v in self.figures.items() if k not in left_out}
        return json.dumps(
            {**shown, "violations": self.violations, "failures": self.failures}, indent=2
        )


def result_of(load: Load, history: History, blows: Counter[str]) -> Result:
    """Judge a run that any system has gone through."""
    jobs = [history.final.jobs[job] for job in load.submitted if job in history.final.jobs]
    figures = {
        "jobs": len(jobs),
        "trained": len(load.trainings),
        "blows": dict(sorted(blows.items())),
        "ends": dict(sorted(Counter(_end(record) for record in jobs).items())),
        "cancelled": len(load.cancelled),
        "attempts": dict(sorted(Counter(record["attempt"] for record in jobs).items())),
        "ranks": dict(sorted(Counter(_width(r) for r in jobs if r["placement"]).items())),
        "gangs_over_nodes": sum(1 for r in jobs if r["placement"] and len(_nodes(r)) > 1),
        "events": len(history.events),
        "runs": len(history.runs),
        **_times(jobs),
    }
    return Result(
        figures=figures,
        violations=[str(violation) for violation in check(history)],
        failures=[*_wrong_ends(load, history), *_wrong_trainings(load, history)],
    )


def with_system(result: Result, system: Installed, watch: Watch) -> Result:
    """Add how the system's processes fared."""
    exits = system.unexpected_exits()
    result.violations += [f"{name} ended by itself: {codes}" for name, codes in exits.items()]
    result.violations += system.complaints()
    result.figures |= {
        "flat": watch.flat(),
        "kept_per_job": watch.per_job(),
        "samples": _series(watch),
        "kept": [asdict(kept) for kept in _thin(watch.kept)],
    }
    return result


def write(folder: Path, name: str, result: Result) -> None:
    """Write ``<name>.json``, with machine and commit, and ``<name>.md``."""
    data = {**result.figures, "violations": result.violations, "failures": result.failures}
    record.store(folder / f"{name}.json", data)
    stored = json.loads((folder / f"{name}.json").read_text())
    (folder / f"{name}.md").write_text(page(stored))


def page(data: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    machine = data["machine"]
    lines = [
        f"# Chaos, {data['seconds'] / 60:.0f} minutes",
        "",
        f"Seed {data['seed']}, commit {data['commit']}, {data['time']}.",
        (
            f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_1m']}, "
            f"{machine['system']}, Python {machine['python']}."
        ),
        "",
        f"**{_verdict(data)}**",
        "",
        *_jobs(data),
        *_table("Ends", ("state, reason", "jobs"), data["ends"]),
        *_table("Attempts", ("attempts", "jobs"), data["attempts"]),
        *_table("Ranks", ("ranks", "jobs"), data["ranks"]),
        *_table("Blows", ("blow", "times"), data["blows"]),
        *_flat(data),
        *_kept(data),
    ]
    for title in ("violations", "failures"):
        if data[title]:
            lines += [f"## {title.capitalize()}", *(f"- {line}" for line in data[title]), ""]
    return "\n".join(lines)


# -- judging --------------------------------------------------------------------------------------


def _wrong_ends(load: Load, history: History) -> list[str]:
    found = []
    for job in load.submitted:
        if job not in history.final.jobs:
            continue  # I1 says it
        state = history.final.jobs[job]["state"]
        right = {"FAILED"} if job in load.failing else {"SUCCEEDED"}
        right |= {"CANCELLED"} if job in load.cancelled else set()
        if state not in right:
            found.append(f"{job} is {state}: {history.final.jobs[job]['message']}")
    return found


def _wrong_trainings(load: Load, history: History) -> list[str]:
    """A training that was hit and resumed ends with the loss of one of its plan that was not."""
    by_plan: dict[str, dict[str, float]] = defaultdict(dict)
    for job in load.trainings:
        record = history.final.jobs.get(job, {})
        if record.get("state") == "SUCCEEDED":
            by_plan[record["placement"]["plan"]][job] = record["last_loss"]
    found = []
    for plan, losses in by_plan.items():
        (usual, _), *_ = Counter(losses.values()).most_common(1)
        found += [
            f"{job} ended with the loss {loss}, others with {plan} at {usual}"
            for job, loss in losses.items()
            if abs(loss - usual) > _SAME_LOSS * usual
        ]
    return found


# -- figures --------------------------------------------------------------------------------------


def _end(record: dict[str, Any]) -> str:
    return f"{record['state']} {record['reason']}".strip()


def _width(record: dict[str, Any]) -> int:
    return len(record["placement"]["devices"])


def _nodes(record: dict[str, Any]) -> set[str]:
    return {device["node"] for device in record["placement"]["devices"]}


def _times(jobs: list[dict[str, Any]]) -> dict[str, float]:
    over = [r for r in jobs if r["finished_ms"]]
    seconds = sorted((r["finished_ms"] - r["created_ms"]) / 1000 for r in over)
    whole = max(r["finished_ms"] for r in over) - min(r["created_ms"] for r in over)
    return {
        "jobs_per_second": round(len(over) * 1000 / whole, 2),
        "end_p50_s": round(seconds[len(seconds) // 2], 2),
        "end_p99_s": round(seconds[int(len(seconds) * 0.99)], 2),
        "end_most_s": round(seconds[-1], 2),
    }


def _series(watch: Watch) -> dict[str, list[list[float]]]:
    """Return [seconds, MiB, descriptors, threads] of each process."""
    series: dict[str, list[list[float]]] = {}
    for sample in watch.samples:
        mib = round(sample.rss_bytes / 1024**2, 1)
        row = [sample.at_s, mib, sample.descriptors, sample.threads]
        series.setdefault(sample.name, []).append(row)
    return {name: _thin(rows) for name, rows in sorted(series.items())}


def _thin(rows: list) -> list:
    step = max(1, len(rows) // _POINTS)
    return rows[::step]


# -- page -----------------------------------------------------------------------------------------


def _verdict(data: dict[str, Any]) -> str:
    wrong = len(data["violations"]) + len(data["failures"])
    if wrong:
        return f"{wrong} things were wrong, see the end."
    return "0 lost, 0 doubled, 0 double-booked, 0 left over; every job ended right."


def _jobs(data: dict[str, Any]) -> list[str]:
    return [
        (
            f"{data['jobs']} jobs ({data['trained']} of them real DeepSpeed trainings), "
            f"{data['gangs_over_nodes']} gangs over several nodes, {data['runs']} recorded ranks, "
            f"{data['events']} events, {sum(data['blows'].values())} blows."
        ),
        (
            f"{data['jobs_per_second']} jobs a second; from submission to end p50 "
            f"{data['end_p50_s']} s, p99 {data['end_p99_s']} s, at most {data['end_most_s']} s."
        ),
        "",
    ]


def _table(title: str, heads: tuple[str, str], rows: dict[str, Any]) -> list[str]:
    body = [f"| {name} | {value} |" for name, value in rows.items()]
    return [f"## {title}", f"| {' | '.join(heads)} |", "|---|---|", *body, ""]


def _flat(data: dict[str, Any]) -> list[str]:
    rows = [
        f"| {name} | {' / '.join(map(format_bytes, found['rss_bytes']))} "
        f"| {' / '.join(map(str, found['descriptors']))} "
        f"| {' / '.join(map(str, found['threads']))} | {found['verdict']} |"
        for name, found in data["flat"].items()
    ]
    return [
        "## Memory, descriptors, threads",
        "Peaks of the second and of the last quarter of the run.",
        "",
        "| process | memory | descriptors | threads | verdict |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _kept(data: dict[str, Any]) -> list[str]:
    rows = [
        f"| {k['at_s']:.0f} s | {k['machine_load']} | {k['jobs']} | {k['store_keys']} "
        f"| {format_bytes(k['store_memory_bytes'])} | {format_bytes(k['store_disk_bytes'])} "
        f"| {format_bytes(k['streams_disk_bytes'])} |"
        for k in data["kept"][:: max(1, len(data["kept"]) // 12)]
    ]
    return [
        "## What the servers keep",
        *(
            f"- {name.replace('_', ' ')} for each job of the first and the second half: "
            f"{before} and {after}"
            for name, (before, after) in data["kept_per_job"].items()
        ),
        "",
        "| time | load of the machine | jobs | keys | store's memory | store's disk | streams |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]
