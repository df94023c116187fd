"""From outcomes to figures: what is drawn, independent of how."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import DeviceId, JobId, NodeId
from frenzy_simulator.outcome import Outcome

MAX_POINTS: Final = 800  # of one line: more cannot be seen
MAX_ROWS: Final = 24  # nodes of one Gantt chart
MAX_BARS: Final = 5000

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart. ``steps``: the value holds until the next point."""

    name: str
    points: tuple[Point, ...]
    steps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over one horizontal axis, which may be logarithmic."""

    title: str
    across: str
    up: str
    lines: tuple[Line, ...]
    logarithmic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A job on neighbouring devices of a node: row, and the lanes of the row that it fills."""

    row: int
    lane: int
    lanes: int
    start_h: float
    end_h: float
    job: JobId
    restart: bool  # not the job's first devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Gantt:
    """Who had which device when. ``rows`` are nodes with their number of devices."""

    title: str
    rows: tuple[tuple[str, int], ...]
    bars: tuple[Bar, ...]


def completion_times(outcomes: Sequence[Outcome]) -> Chart:
    """Return which share of jobs had ended within which time."""
    lines: list[Line] = []
    for outcome in outcomes:
        times = sorted(job.completion_s / 3600 for job in outcome.done)
        points = [(hours, number / len(times)) for number, hours in enumerate(times, 1)]
        lines.append(Line(name=outcome.policy, points=_thinned(points)))
    return Chart(
        title="Completion times",
        across="hours from submission to end",
        up="share of jobs",
        lines=tuple(lines),
        logarithmic=True,
    )


def queue(outcomes: Sequence[Outcome]) -> Chart:
    """Return how many jobs waited, over time."""
    lines: list[Line] = []
    for outcome in outcomes:
        changes: list[Point] = []
        for job in outcome.done:
            arrived_s = round(job.submit_s, 3)  # as the engine counts
            changes += [(arrived_s, 1.0), (job.finish_s, -1.0)]
        for stay in outcome.stays:
            changes += [(stay.from_s, -1.0), (stay.until_s, 1.0)]
        lines.append(Line(name=outcome.policy, points=_thinned(_summed(changes))))
    return Chart(title="Queue", across="hours", up="jobs that wait", lines=tuple(lines))


def use(outcome: Outcome) -> Chart:
    """Return how many devices of each kind were held, over time."""
    changes: dict[str, list[Point]] = {}
    for stay in outcome.stays:
        count = float(len(stay.devices))
        changes.setdefault(stay.kind, []).extend([(stay.from_s, count), (stay.until_s, -count)])
    lines = (
        Line(name=kind, points=_thinned(_summed(found))) for kind, found in sorted(changes.items())
    )
    title = f"Use by kind: {outcome.policy}"
    return Chart(title=title, across="hours", up="GPUs held", lines=tuple(lines))


def gantt(outcome: Outcome, nodes: Sequence[NodeRecord]) -> Gantt:
    """Return who held which device of the first nodes; the longest bars where there are many."""
    shown = nodes[:MAX_ROWS]
    lanes = {node.id: {device.id: n for n, device in enumerate(node.devices)} for node in shown}
    rows = {node.id: number for number, node in enumerate(shown)}
    bars: list[Bar] = []
    seen: Counter[JobId] = Counter()
    for stay in sorted(outcome.stays, key=lambda one: one.from_s):
        seen[stay.job] += 1
        for node, held in _by_node(stay.devices_by_node, rows):
            for lane, count in _neighbours(lanes[node][device] for device in held):
                bars.append(
                    Bar(
                        row=rows[node],
                        lane=lane,
                        lanes=count,
                        start_h=stay.from_s / 3600,
                        end_h=stay.until_s / 3600,
                        job=stay.job,
                        restart=seen[stay.job] > 1,
                    )
                )
    more = f" (the first {MAX_ROWS} of {len(nodes)} nodes)" if len(nodes) > MAX_ROWS else ""
    if len(bars) > MAX_BARS:
        bars = sorted(bars, key=lambda bar: bar.start_h - bar.end_h)[:MAX_BARS]
        more += f" (the {MAX_BARS} longest stays)"
    return Gantt(
        title=f"Who ran where: {outcome.policy}{more}",
        rows=tuple((f"{node.id} {node.devices[0].kind}", len(node.devices)) for node in shown),
        bars=tuple(bars),
    )


def _by_node(
    devices: Iterable[tuple[NodeId, DeviceId]], rows: dict[NodeId, int]
) -> Iterable[tuple[NodeId, list[DeviceId]]]:
    for node, group in groupby(sorted(devices), key=lambda pair: pair[0]):
        if node in rows:
            yield node, [device for _, device in group]


def _neighbours(lanes: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Yield first lane and length of each run of neighbouring lanes."""
    ordered = sorted(lanes)
    for _, group in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        run = [lane for _, lane in group]
        yield run[0], len(run)


def _summed(changes: list[Point]) -> list[Point]:
    """Add changes up over time; seconds become hours."""
    points: list[Point] = []
    level = 0.0
    for at_s, group in groupby(sorted(changes), key=lambda change: change[0]):
        level += sum(change for _, change in group)
        points.append((at_s / 3600, level))
    return points


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """Keep of every stretch its highest point, and the ends."""
    if len(points) <= MAX_POINTS:
        return tuple(points)
    size = -(-len(points) // MAX_POINTS)
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    kept = [max(stretch, key=lambda point: point[1]) for stretch in stretches]
    return (points[0], *kept, points[-1])
