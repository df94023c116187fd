"""The tracer's edges: what it refuses, its limits, and its kept answers."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from frenzy_shared.messages.trace import TraceAnswer, TraceRequest
from frenzy_trainer.errors import RankFailure
from frenzy_trainer.trace import __main__ as command
from frenzy_trainer.trace import cache, supervisor
from frenzy_trainer.trace.models import ModelSource

REQUEST = {
    "model": {"model_type": "gpt2", "n_embd": 8},
    "sequence_length": 8,
    "micro_batch_size": 1,
    "precision": "fp32",
    "engine": {"ranks": 2, "config": {}},
}
ANSWER = TraceAnswer(
    engine={"parameters": 7, "rank": 0, "moments": [], "config": {}}, versions={"torch": "1"}
)


@pytest.fixture
def ask(monkeypatch, capsys):
    """Run the command with a request on stdin; return its exit code and its answer."""

    def run(request, *options):
        text = request if isinstance(request, bytes) else json.dumps(request).encode()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        code = command.main(options)
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"model_type": "x", "auto_map": {"AutoModel": "x.y"}}}, "model.auto_map"),
        ({"model": {"text_config": {"auto_map": {"a": "b"}}}}, "model.auto_map"),
        ({"model": {"quantization_config": {"bits": 4}}}, "model.quantization_config"),
        ({"model": None}, "either model or factory"),
        ({"model": None, "factory": {"target": "a:b", "folder": "/"}}, "--allow-code"),
        ({"model": None, "factory": {"target": "a:b()", "folder": "/"}}, "factory.target"),
        ({"layers": 3}, "layers"),
        ({"micro_batch_size": 10**12}, "micro_batch_size"),
        ({"engine": {"ranks": 2, "config": {}, "steps": 3}}, "engine.steps"),
    ],
)
def test_a_request_that_is_wrong_is_refused_before_anything_runs(ask, monkeypatch, change, says):
    monkeypatch.setattr(supervisor, "_run", lambda *_: pytest.fail("it ran"))
    code, answer = ask({**REQUEST, **change}, "--no-cache")
    assert code == 1
    assert says in answer["error"]
    assert answer["error_code"].startswith("invalid_")


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"{" * 3, b" " * (2**20 + 1), b'{"model": "\xff"}']
)
def test_a_document_that_is_no_request_is_refused(ask, text):
    code, answer = ask(text)
    assert code == 1
    assert answer["error_code"] == "invalid_spec"


def test_a_deep_configuration_is_refused(ask):
    model = {"model_type": "x"}
    for _ in range(40):
        model = {"inner": model}
    _, answer = ask({**REQUEST, "model": model}, "--no-cache")
    assert "nested" in answer["error"]


def test_an_answer_is_kept_and_found_again(ask, monkeypatch, tmp_path):
    runs = []
    monkeypatch.setattr(supervisor, "_run", lambda *_: runs.append(1) or ANSWER)
    options = ("--cache", str(tmp_path / "kept"))
    first = ask(REQUEST, *options)[1]
    second = ask(REQUEST, *options)[1]
    assert len(runs) == 1
    assert (first["cached"], second["cached"]) == (False, True)
    assert second["engine"] == first["engine"]
    ask({**REQUEST, "sequence_length": 9}, *options)
    assert len(runs) == 2


def test_other_versions_of_the_libraries_make_another_answer():
    request = TraceRequest.model_validate(REQUEST)
    names = {cache.entry(Path("/c"), request, {"torch": version}) for version in "12"}
    assert len(names) == 2


def test_a_damaged_entry_is_traced_again_with_a_warning(ask, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(supervisor, "_run", lambda *_: ANSWER)
    options = ("--cache", str(tmp_path))
    ask(REQUEST, *options)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b'{"engine": 3')
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(REQUEST).encode()))
    )
    assert command.main(options) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["cached"] is False
    assert "tracing again" in printed.err
    assert ask(REQUEST, *options)[1]["cached"] is True


def test_a_failed_trace_is_not_kept(ask, monkeypatch, tmp_path):
    failed = TraceAnswer(error_code="trace_failed", error="no")
    monkeypatch.setattr(supervisor, "_run", lambda *_: failed)
    code, answer = ask(REQUEST, "--cache", str(tmp_path))
    assert (code, answer["error"]) == (1, "no")
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_costs_nothing_but_the_next_trace(
    ask, monkeypatch, tmp_path
):
    monkeypatch.setattr(supervisor, "_run", lambda *_: ANSWER)
    (tmp_path / "file").write_text("in the way")
    code, answer = ask(REQUEST, "--cache", str(tmp_path / "file"))
    assert code == 0
    assert answer["engine"]["parameters"] == 7


@pytest.mark.parametrize(
    ("body", "options", "says"),
    [
        ("while True: pass", ("--seconds", "3"), "longer than 3 s"),
        ("x = bytearray(10 * 2**30)", ("--memory", str(2 * 2**30)), "memory"),
    ],
)
def test_a_users_code_that_takes_too_much_is_stopped(ask, tmp_path, body, options, says):
    (tmp_path / "mine.py").write_text(f"def make():\n    {body}\n")
    factory = {"target": "mine:make", "folder": str(tmp_path)}
    request = {**REQUEST, "model": None, "factory": factory}
    code, answer = ask(request, "--allow-code", *options)
    assert code == 1
    assert says in answer["error"]


def test_a_child_that_dies_is_reported_with_its_last_words(ask, monkeypatch, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'terminate called' >&2\nkill -ABRT $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(supervisor.sys, "executable", str(program))
    code, answer = ask(REQUEST, "--no-cache")
    assert code == 1
    assert "terminate called" in answer["error"]


@pytest.mark.parametrize(
    ("body", "says"),
    [("raise KeyError('mine')", "failed: KeyError: 'mine'"), ("return 3", "returned int")],
)
def test_a_factory_that_makes_no_module_is_named(tmp_path, body, says):
    name = f"mine_{len(body)}"
    (tmp_path / f"{name}.py").write_text(f"def make():\n    {body}\n")
    factory = {"target": f"{name}:make", "folder": str(tmp_path)}
    request = TraceRequest.model_validate({**REQUEST, "model": None, "factory": factory})
    with pytest.raises(RankFailure, match=f"{name}:make {says}"):
        ModelSource(request).build()
