"""Report lines: what they add up to, and that nothing a user writes can break the agent."""

import json

from hypothesis import given
from hypothesis import strategies as st

from frenzy_orchestrator.adapters.reports import RankReports
from frenzy_orchestrator.core.exits import RankReport
from frenzy_orchestrator.core.reports import Checkpoint, Step, fold, parse


def write(folder, *entries):
    with (folder / "report.jsonl").open("a") as file:
        for entry in entries:
            file.write(entry if isinstance(entry, str) else json.dumps(entry) + "\n")


def test_steps_add_up():
    report = RankReport()
    for step, loss, peak in ((1, 4.0, 10), (2, 3.0, 30), (3, 2.0, 20)):
        report, told = fold(
            report, {"kind": "step", "step": step, "loss": loss, "peak_allocated_bytes": peak}
        )
        assert isinstance(told, Step)
    assert (report.loss_first, report.loss_last, report.last_step) == (4.0, 2.0, 3)
    assert report.peak_allocated_bytes == 30


def test_the_first_failure_stays():
    report, _ = fold(RankReport(), {"kind": "failure", "reason": "DataError", "message": "a"})
    report, _ = fold(report, {"kind": "failure", "reason": "InternalError", "message": "b"})
    assert (report.failure_reason, report.failure_message) == ("DataError", "a")


def test_a_summary_completes():
    report, _ = fold(
        RankReport(peak_allocated_bytes=7),
        {"kind": "summary", "peak_allocated_bytes": 5, "loss_last": 1.5, "last_step": 9},
    )
    assert (report.peak_allocated_bytes, report.loss_last, report.last_step) == (7, 1.5, 9)


def test_a_nan_loss_is_absent():
    _, told = fold(RankReport(), {"kind": "step", "step": 1, "loss": float("nan")})
    assert told.loss is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KINDS = st.sampled_from(["step", "checkpoint", "failure", "summary", "other"])
NAMES = st.sampled_from(
    ["step", "loss", "time_ms", "reason", "message", "peak_allocated_bytes", "last_step"]
)


@given(KINDS, st.dictionaries(NAMES, json_values))
def test_any_entry_folds(kind, entry):
    report, _ = fold(RankReport(), {**entry, "kind": kind})
    assert isinstance(report, RankReport)


@given(st.binary(max_size=200))
def test_any_bytes_parse(line):
    assert parse(line) is None or isinstance(parse(line), dict)


def test_what_was_told_is_not_told_again(tmp_path):
    write(tmp_path, {"kind": "step", "step": 1, "loss": 3.0}, {"kind": "checkpoint", "step": 1})
    first = RankReports(tmp_path)
    told, more = first.read(at_end=False)
    assert [type(entry) for entry in told] == [Step, Checkpoint]
    assert not more
    first.save()
    write(tmp_path, {"kind": "step", "step": 2, "loss": 2.0})
    second = RankReports(tmp_path)
    told, _ = second.read(at_end=False)
    assert [entry.step for entry in told] == [2]
    assert second.report.loss_first == 3.0


def test_what_could_not_be_told_is_read_again(tmp_path):
    write(tmp_path, {"kind": "step", "step": 1, "loss": 3.0})
    reports = RankReports(tmp_path)
    reports.read(at_end=False)
    reports.rewind()
    assert [entry.step for entry in reports.read(at_end=False)[0]] == [1]


def test_half_a_line_waits_unless_its_writer_is_gone(tmp_path):
    write(tmp_path, '{"kind": "step", "step"')
    reports = RankReports(tmp_path)
    assert reports.read(at_end=False) == ([], False)
    write(tmp_path, ": 4}")
    assert [entry.step for entry in reports.read(at_end=True)[0]] == [4]


def test_a_line_without_end_does_not_block_what_follows(tmp_path):
    write(tmp_path, "x" * 600_000 + "\n", {"kind": "step", "step": 5})
    reports = RankReports(tmp_path)
    steps = []
    more = True
    while more:
        told, more = reports.read(at_end=False)
        steps.extend(told)
    assert [entry.step for entry in steps] == [5]
