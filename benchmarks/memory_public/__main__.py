"""``python -m benchmarks.memory_public [--cases FILE]...``: score MARP on measured public runs.

The files come from ``--cases`` or from FRENZY_CASES (separated like PATH). They are not part of
the project; without them nothing is measured and the benchmark says so.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.memory_public.tables import print_report

from frenzy_marp.core.cases.case import Case, parse_case
from frenzy_marp.core.cases.document import summary
from frenzy_marp.core.cases.reading import CaseError
from frenzy_marp.core.cases.scoring import Mode, Report, score

EXPECTED = {"allocated": 0.95, "reserved": 0.92, "device": 0.91}
RESULTS = Path(__file__).parent / "results"
_MISSING = (
    "no cases: give --cases FILE, or set FRENZY_CASES to memory_cases.jsonl (and, behind a "
    f"{os.pathsep!r}, oom_cases.jsonl); the fields are documented in README.md"
)


def main() -> int:
    """Return 0 when every mode is inside its expected range, 2 when a file cannot be read."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory_public")
    parser.add_argument("--cases", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}/scores.json")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="print the N worst rows")
    options = parser.parse_args()
    named = [Path(path) for path in os.environ.get("FRENZY_CASES", "").split(os.pathsep) if path]
    paths = options.cases or named
    if not paths:
        print(f"skipped: {_MISSING}")
        return 0
    try:
        cases = [case for path in paths for case in read_cases(path)]
    except (OSError, ValueError, CaseError) as error:
        print(f"cannot read the cases: {error}", file=sys.stderr)
        return 2
    reports = [score(cases, mode) for mode in Mode]
    print_report(reports, worst=options.worst)
    if options.save:
        save(reports, [path.name for path in paths])
    return 0 if inside(reports) else 1


def read_cases(path: Path) -> list[Case]:
    """Read a JSON-lines file of cases; errors name the line."""
    cases: list[Case] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            cases.append(parse_case(json.loads(line)))
        except (ValueError, CaseError) as error:
            raise CaseError(f"{path}:{number}: {error}") from error
    return cases


def inside(reports: list[Report]) -> bool:
    """Compare the analytical mode with what this benchmark expects of it."""
    found = next(summary(report) for report in reports if report.mode is Mode.ANALYTICAL)
    metrics = found["metrics"]
    wanted = {name: low for name, low in EXPECTED.items() if name in metrics}
    reached = {name: metrics[name]["macro_groups_of_8"] for name in wanted}
    return all(reached[name] is None or reached[name] >= low for name, low in wanted.items())


def save(reports: list[Report], files: list[str]) -> None:
    """Write the summaries of all modes, with the machine and the commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    document: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python "
        f"{platform.python_version()}",
        "commit": commit.stdout.strip(),
        "files": files,
        "modes": {report.mode.value: summary(report) for report in reports},
    }
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / "scores.json"
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"saved {target}")


if __name__ == "__main__":
    sys.exit(main())
