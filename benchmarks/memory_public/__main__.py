"""``python -m benchmarks.memory_public [--cases FILE]...``: score MARP on measured public runs.

The files come from ``--cases`` or from FRENZY_CASES (separated like PATH). They are not part of
the project; without them nothing is measured and the benchmark says so.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.memory_public.evaluation import Evaluation, evaluate
from benchmarks.memory_public.evidence import write_evidence
from benchmarks.memory_public.own_runs import own_runs
from benchmarks.memory_public.peers import score_peers
from benchmarks.memory_public.plot import write_plot
from benchmarks.memory_public.tables import print_evaluation, print_own_runs, print_peers
from benchmarks.record import store

from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.document import summary
from frenzy_marp.core.cases.lines import Refused, read_cases
from frenzy_marp.core.cases.reading import CaseError

EXPECTED = {"allocated": 0.955, "reserved": 0.93, "device": 0.92}
RESULTS = Path(__file__).parent / "results"
_MISSING = (
    "no cases: give --cases FILE, or set FRENZY_CASES to memory_cases.jsonl (and, behind a "
    f"{os.pathsep!r}, oom_cases.jsonl); the fields are documented in README.md"
)


def main() -> int:
    """Return 0 when every metric is inside its expected range, 2 when a file cannot be read."""
    options = _options()
    named = [Path(path) for path in os.environ.get("FRENZY_CASES", "").split(os.pathsep) if path]
    paths = options.cases or named
    if not paths:
        print(f"skipped: {_MISSING}")
        return 0
    try:
        cases, refused = read_files(paths)
    except (OSError, CaseError) as error:
        print(f"cannot read the cases: {error}", file=sys.stderr)
        return 2
    for row in refused:
        print(f"unsupported: {row.id}: {row.reason}")
    if options.fit:
        print(f"wrote {write_evidence(cases)}")
    found = evaluate(cases)
    print_evaluation(found, worst=options.worst)
    own = own_runs(cases)
    print_own_runs(own)
    peers = score_peers(cases) if options.peers else {}
    print_peers(peers)
    if options.save:
        summaries = {report.mode: summary(report, refused) for report in found.reports}
        files = [path.name for path in paths]
        store(
            RESULTS / "scores.json",
            {
                "files": files,
                "modes": summaries,
                "breakdown": found.breakdown,
                "own_runs": [asdict(row) for row in own],
                "peers": peers,
            },
        )
        write_plot(found, RESULTS / "accuracy.svg")
        print(f"saved {RESULTS}")
    return 0 if inside(found) else 1


def read_files(paths: Sequence[Path]) -> tuple[list[Case], list[Refused]]:
    """Read JSON-lines files of cases; errors name the file and the line."""
    cases: list[Case] = []
    refused: list[Refused] = []
    for path in paths:
        try:
            with path.open("rb") as lines:
                for entry in read_cases(lines):
                    (refused if isinstance(entry, Refused) else cases).append(entry)
        except CaseError as error:
            raise CaseError(f"{path}: {error}") from error
    return cases, refused


def inside(found: Evaluation) -> bool:
    """Compare the analytical mode with what this benchmark expects of it."""
    metrics = summary(found.report("analytical"))["metrics"]
    reached = {name: metrics[name]["macro_groups_of_8"] for name in EXPECTED if name in metrics}
    return all(value is None or value >= EXPECTED[name] for name, value in reached.items())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.memory_public")
    parser.add_argument("--cases", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}/")
    parser.add_argument("--fit", action="store_true", help="write MARP's shipped evidence first")
    parser.add_argument("--peers", action="store_true", help="score other estimators too")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="print the N worst rows")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
