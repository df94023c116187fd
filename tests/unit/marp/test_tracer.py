"""The adapter that asks the tracer: whatever that process does, the answer is a clear one."""

import json
import sys

import pytest

from frenzy_marp.adapters import tracing
from frenzy_marp.adapters.tracing import TraceFailed, Tracer
from frenzy_shared.messages.trace import TraceAnswer, TraceRequest

REQUEST = TraceRequest.model_validate(
    {
        "model": {"model_type": "gpt2"},
        "sequence_length": 8,
        "micro_batch_size": 1,
        "precision": "bf16",
        "engine": {"ranks": 1, "config": {}},
    }
)


@pytest.fixture
def tracer_that(tmp_path):
    """Make a tracer whose process is a small script."""

    def make(body, **options):
        script = tmp_path / "tracer.py"
        script.write_text(body)
        return Tracer(command=(sys.executable, "-S", str(script)), **options)

    return make


def test_the_answer_is_what_the_process_wrote(tracer_that):
    engine = {"parameters": 3, "rank": 0, "moments": [], "config": {}}
    answer = TraceAnswer(engine=engine).model_dump_json()
    found = tracer_that(f"print({answer!r})").engine(REQUEST)
    assert found.parameters == 3


def test_the_request_and_the_limits_are_handed_over(tracer_that, tmp_path):
    out = tmp_path / "seen.json"
    body = f"import json, sys; json.dump([sys.argv[1:], sys.stdin.read()], open({str(out)!r}, 'w'))"
    with pytest.raises(TraceFailed):
        tracer_that(body, seconds=7, memory_bytes=5).engine(REQUEST)
    arguments, text = json.loads(out.read_text())
    assert arguments == ["--seconds", "7", "--memory", "5"]  # and never --allow-code
    assert TraceRequest.model_validate_json(text) == REQUEST


def test_why_there_is_no_result_is_passed_on(tracer_that):
    answer = TraceAnswer(error_code="trace_limit", error="too long", suggestions=("wait",))
    with pytest.raises(TraceFailed, match="too long") as failure:
        tracer_that(f"print({answer.model_dump_json()!r})").engine(REQUEST)
    assert failure.value.suggestions == ("wait",)


def test_a_tracer_that_cannot_import_its_libraries_says_what_to_install(tracer_that):
    with pytest.raises(TraceFailed, match="No module named 'torch'") as failure:
        tracer_that("raise ModuleNotFoundError(\"No module named 'torch'\")").engine(REQUEST)
    assert ".[node]" in failure.value.suggestions[0]


def test_a_tracer_that_hangs_is_given_up(tracer_that, monkeypatch):
    monkeypatch.setattr(tracing, "_GRACE_S", 0.2)
    with pytest.raises(TraceFailed, match="does not answer"):
        tracer_that("import time; time.sleep(60)", seconds=0).engine(REQUEST)


def test_a_missing_interpreter_is_an_error_not_a_traceback():
    with pytest.raises(TraceFailed, match="cannot be started"):
        Tracer(command=("/nowhere/python",)).engine(REQUEST)
