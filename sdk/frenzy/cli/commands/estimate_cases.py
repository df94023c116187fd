"""``frenzy estimate --cases``: predictions for measured runs, and how good they are."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from frenzy.cli import output
from frenzy.cli.options import Format
from frenzy.errors import InvalidSpec

MODES: Final = ("frenzy-2024", "analytical", "learned")
_SHOWN: Final = 40  # rows of the table for people; programs get all


def estimate_cases(path: str, mode: str, output_: Format) -> None:
    """Predict every case of a JSON-lines file; ``-`` is standard input.

    Raises:
        FrenzyError: the file cannot be read, or a line of it is no JSON object.
    """
    from frenzy_marp.core.cases.document import document  # noqa: PLC0415 - only this command's
    from frenzy_marp.core.cases.lines import read_cases  # noqa: PLC0415
    from frenzy_marp.core.cases.modes import Mode  # noqa: PLC0415

    if mode not in MODES:
        raise InvalidSpec(
            f"--mode: {mode[:60]!r} is not known", suggestions=[f"one of: {', '.join(MODES)}"]
        )
    with _opened(path) as stream:
        found = document(read_cases(_lines(stream)), Mode(mode))
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(found, output_)
    else:
        output.out().print(_shown(found))


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as stream:
            yield stream
    except OSError as error:
        raise InvalidSpec(f"cannot read {path[:200]!r}: {error.strerror}") from error


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines; of one that is too long only the part that shows it."""
    from frenzy_marp.core.cases.lines import LONGEST_LINE  # noqa: PLC0415 - only this command's

    while line := stream.readline(LONGEST_LINE + 2):
        yield line


def _shown(found: dict[str, Any]) -> RenderableType:
    rows, summary = found["cases"], found["summary"]
    known = [row for row in rows if "unsupported" not in row]
    parts: list[RenderableType] = [_cases(known[:_SHOWN])]
    if len(known) > _SHOWN:
        parts.append(Text(f"... and {len(known) - _SHOWN} more: all of them with -o json"))
    refused = [row for row in rows if "unsupported" in row]
    if refused:
        parts += [Text(), Text(f"unsupported: {len(refused)}", style="yellow")]
        parts += [Text(f"  {row['id']}: {row['unsupported']}") for row in refused[:_SHOWN]]
    if summary["metrics"]:
        parts += [Text(), Text(f"accuracy of {found['mode']}", style="bold"), _metrics(summary)]
    verdicts = summary["verdicts"]
    if verdicts["oom"] + verdicts["fits"]:
        parts += [Text(), _verdicts(verdicts)]
    return Group(*parts)


def _cases(rows: list[dict[str, Any]]) -> RenderableType:
    def expected(row: dict[str, Any], metric: str) -> str:
        return f"{row['by_metric'][metric]['expected']:.2f}"

    return output.table(
        {
            "case": [row["id"] for row in rows],
            "GiB": [f"{row['predicted_gib']:.2f}" for row in rows],
            "allocated": [expected(row, "allocated") for row in rows],
            "reserved": [expected(row, "reserved") for row in rows],
            "device": [expected(row, "device") for row in rows],
            "required up to": [f"{row['by_metric']['required']['high']:.2f}" for row in rows],
            "verdict": [row["verdict"] or "no capacity" for row in rows],
            "p(oom)": ["" if row["p_oom"] is None else f"{row['p_oom']:.2f}" for row in rows],
            "peak at": [row["moment"] for row in rows],
        }
    )


def _metrics(summary: dict[str, Any]) -> RenderableType:
    metrics = summary["metrics"]
    columns = {
        "mean": "mean",
        "by group": "macro",
        "median": "median",
        "within 5 %": "within_5pct",
        "within 10 %": "within_10pct",
        "above high": "above_high",
    }
    return output.table(
        {
            "metric": list(metrics),
            "readings": [found["n"] for found in metrics.values()],
            "unsupported": [found["unsupported"] for found in metrics.values()],
            **{
                title: [
                    f"{100 * found[name]:.1f} %" if name in found else ""
                    for found in metrics.values()
                ]
                for title, name in columns.items()
            },
        }
    )


def _verdicts(verdicts: dict[str, Any]) -> Text:
    return Text(
        f"verdicts: balanced accuracy {100 * verdicts['balanced_accuracy']:.1f} %, "
        f"{verdicts['unsafe']} of {verdicts['oom']} out-of-memory runs called fits, "
        f"{verdicts['false_refusals']} of {verdicts['fits']} runs that fitted refused"
    )
