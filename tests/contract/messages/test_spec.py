"""Bad specifications: the field, what is wrong with it, and what to do."""

import json
from typing import Any

import pytest

from frenzy_shared.domain.ids import RESERVED_PROJECTS, is_name
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.spec import JobSpec, memory_range, parse_spec

BLOB = "blob:sha256:" + "0" * 64
GOOD: dict[str, Any] = {"model": "gpt2-tiny", "data": BLOB, "global_batch_size": 8}
SCRIPT = {"entrypoint": {"script": "train.py"}, "workdir": BLOB}


def refusal(**changes: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec({**GOOD, **changes})
    return caught.value


def test_three_keys_are_enough() -> None:
    spec = parse_spec(GOOD)
    assert (spec.priority, spec.optimizer, spec.retry.max_retries) == (50, "adamw", 2)
    assert spec.resources.gpus is None
    assert parse_spec(json.loads(spec.encode())) == spec


@pytest.mark.parametrize(
    ("changes", "pointer", "hint"),
    [
        ({"global_batchsize": 8}, "/global_batchsize", "did you mean 'global_batch_size'?"),
        ({"learningrate": 1}, "/learningrate", "did you mean 'learning_rate'?"),
        ({"gpus": 2}, "/gpus", "unknown key 'gpus'"),
        ({"zzzzzz": 2}, "/zzzzzz", "known: spec_version"),
        ({"resources": {"gpu_memroy": "1GB"}}, "/resources/gpu_memroy", "mean 'gpu_memory'?"),
        ({"resources": {"zero": 2}}, "/resources/zero", "did you mean 'zero_stage'?"),
        ({"retry": {"max_retry": 2}}, "/retry/max_retry", "did you mean 'max_retries'?"),
        ({"checkpoint": {"every": 2}}, "/checkpoint/every", "did you mean 'every_steps'?"),
        ({**SCRIPT, "entrypoint": {"script": "t.py", "arg": []}}, "/entrypoint/arg", "'args'?"),
    ],
)
def test_unknown_keys_are_refused_at_every_level(
    changes: dict[str, Any], pointer: str, hint: str
) -> None:
    error = refusal(**changes)
    [problem] = error.problems
    assert problem.pointer == pointer
    assert hint in problem.detail
    assert pointer.strip("/").replace("/", ".") in error.message


@pytest.mark.parametrize(
    ("pointer", "values"),
    [
        ("/global_batch_size", [0, -1, 2**21, "8", 8.5, True, None, float("nan"), [], {}]),
        ("/sequence_length", [0, -1, 2**21, "1024", 1024.5, True]),
        ("/max_steps", [0, -5, 10**10, "10", True]),
        ("/epochs", [0, -1.0, 1e7, float("nan"), float("inf"), "many"]),
        ("/learning_rate", [0, -1e-3, 11, float("nan"), float("inf"), "fast", None]),
        ("/weight_decay", [-0.1, 11, float("nan")]),
        ("/gradient_clipping", [0, -1, float("nan"), float("inf")]),
        ("/warmup_steps", [-1, 10**10, "1", 1.5]),
        ("/seed", [-1, 2**31, 1.5, "1"]),
        ("/priority", [-1, 101, "high", 10**12]),
        ("/precision", ["fp7", 16, ""]),
        ("/optimizer", ["adamx", "sgd", 1]),
        ("/lr_scheduler", ["linear?", 1]),
        ("/attention", ["flash9", None]),
        ("/method", ["qlora", None]),
        ("/spec_version", [2, "1", 0]),
        ("/name", ["", "x" * 64, "a/b", "../x", "a\nb", "Ab", "-a", "a-", "a.b", "*", 5, "ñ"]),
        ("/labels", [{"Bad Key": "x"}, {"a": "x" * 257}, {"a": 1}, ["a"], None]),
        ("/max_duration", ["", "0s", "-5m", "1y", "5", "nanh", "infd", 5]),
        ("/resources/gpus", [0, -1, 2**17, "2", 1.5, True]),
        ("/resources/zero_stage", [-1, 4, 5, "2"]),
        ("/resources/tensor", [0, -2, 2000]),
        ("/resources/micro_batch_size", [0, -1, 10**6]),
        ("/resources/gpu_memory", ["", "..", "24", "24XB", "-1GB", "80GB..24GB", "nanGB", 24]),
        ("/resources/kinds", ["a100", [5], None]),
        ("/checkpoint/every_steps", [0, -1, "5"]),
        ("/checkpoint/keep", [0, 101]),
        ("/checkpoint/resume", ["yes", 1]),
        ("/retry/max_retries", [-1, 101]),
        ("/retry/max_oom_retries", [-1, 11]),
    ],
)
def test_wrong_values_are_refused_naming_the_field(pointer: str, values: list[Any]) -> None:
    for value in values:
        *outer, field = pointer.strip("/").split("/")
        changes = {outer[0]: {field: value}} if outer else {field: value}
        error = refusal(**changes)
        assert any(problem.pointer.startswith(pointer) for problem in error.problems), (
            value,
            error.problems,
        )
        assert error.message
        assert "Value error" not in error.message


@pytest.mark.parametrize("field", ["data", "tokenizer", "workdir"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/shadow",
        "file:///etc/shadow",
        "s3://bucket",
        "blob:sha256:abc",
        "blob:sha256:" + "G" * 64,
        "node:relative",
        "node:/data/../etc/shadow",
        "node:/a\0b",
    ],
)
def test_references_are_digests_or_absolute_paths(field: str, text: str) -> None:
    error = refusal(**{field: text})
    assert error.problems[0].pointer == f"/{field}"


@pytest.mark.parametrize(
    "script",
    [
        "/abs/train.py",
        "../train.py",
        "a/../../train.py",
        "train.sh",
        "train.py; rm -rf /",
        "$(id)",
        "`id`",
        "-c",
        "",
        "a\0.py",
    ],
)
def test_an_entrypoint_stays_inside_the_work_folder(script: str) -> None:
    error = refusal(entrypoint={"script": script}, workdir=BLOB)
    assert error.problems[0].pointer == "/entrypoint/script"


def test_arguments_are_bounded() -> None:
    for args in (["a\0b"], ["x"] * 257, "--lr 1", [1]):
        error = refusal(entrypoint={"script": "train.py", "args": args}, workdir=BLOB)
        assert error.problems[0].pointer.startswith("/entrypoint/args")


@pytest.mark.parametrize(
    "name",
    [
        "RANK", "WORLD_SIZE", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP",
        "PATH", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_ANYTHING", "FRENZY_NATS_URL",
    ],
)  # fmt: skip
def test_reserved_environment_is_refused(name: str) -> None:
    error = refusal(env={name: "x"})
    assert error.problems[0].pointer == "/env"
    assert "reserved" in error.message


@pytest.mark.parametrize(
    "env",
    [{"lower": "x"}, {"A-B": "x"}, {"1A": "x"}, {"": "x"}, {"A": "a\0b"}, {"A": "x" * 8193},
     {"A" * 65: "x"}, {"A": 1}, {"É": "x"}, {f"A{n}": "" for n in range(257)}],
)  # fmt: skip
def test_odd_environment_is_refused(env: dict[str, Any]) -> None:
    assert refusal(env=env).problems[0].pointer.startswith("/env")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"data": None}, "model and data, or an entrypoint"),
        ({"model": None}, "model and data, or an entrypoint"),
        ({"entrypoint": {"script": "t.py"}}, "entrypoint needs workdir"),
        ({**SCRIPT, "model": None}, "entrypoint needs model"),
        ({"max_steps": 5, "epochs": 1.0}, "not both"),
        ({"resources": {"gpus": 4, "max_gpus": 2}}, "gpus (4) is above max_gpus (2)"),
    ],
)
def test_fields_that_do_not_go_together(changes: dict[str, Any], complaint: str) -> None:
    assert complaint in refusal(**changes).message


@pytest.mark.parametrize("document", [None, [], "text", 5, True])
def test_what_is_no_mapping_is_refused(document: object) -> None:
    with pytest.raises(InvalidSpec, match="mapping"):
        parse_spec(document)


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"array": {"values": [5]}}, "/array/values/0", "must be text, or a mapping"),
        ({"array": {"values": ["a", None]}}, "/array/values/1", "must be text, or a mapping"),
        ({"array": {"values": [["a"]]}}, "/array/values/0", "must be text, or a mapping"),
        ({"array": {"values": [{5: 1}]}}, "/array/values/0", "a mapping whose keys are text"),
        ({"array": {"values": "abc"}}, "/array/values", "must be a list (got 'abc')"),
        ({"array": {"values": []}}, "/array/values", "must have at least 1 item (has 0)"),
        ({"array": {"values": ["a"] * 1001}}, "/array/values", "at most 1000 items (has 1001)"),
        ({"array": 5}, "/array", "must be a mapping of keys to values (got 5)"),
        ({"array": {"count": "3"}}, "/array/count", "must be a whole number (got '3')"),
        ({"depends_on": "nope"}, "/depends_on", "must be a list (got 'nope')"),
        ({"depends_on": None}, "/depends_on", "must be a list (got null)"),
        ({"depends_on": {"a": 1}}, "/depends_on", "must be a list (got a mapping)"),
        ({"depends_on": [5]}, "/depends_on/0", "must be text (got 5)"),
        ({"resources": {"kinds": "T4"}}, "/resources/kinds", "must be a list (got 'T4')"),
        ({"resources": []}, "/resources", "must be a mapping of keys to values (got a list)"),
        ({"model": 5}, "/model", "must be text, or a mapping of keys to values (got 5)"),
        ({"model": {5: 1}}, "/model", "a mapping whose keys are text"),
        ({"labels": {5: "x"}}, "/labels/5", "keys must be text (got 5)"),
        ({"labels": {"a/b~": 5}}, "/labels/a~1b~0", "must be text (got 5)"),
        ({"epochs": "many"}, "/epochs", "must be a number (got 'many')"),
        ({"checkpoint": {"resume": 1}}, "/checkpoint/resume", "must be true or false (got 1)"),
        ({"seed": True}, "/seed", "must be a whole number (got true)"),
        ({"seed": -1}, "/seed", "must be greater than or equal to 0 (got -1)"),
        ({"attention": "x"}, "/attention", "must be 'eager' or 'sdpa' (got 'x')"),
        ({"env": {"A": "x" * 9000}}, "/env/A", "must have at most 8192 characters"),
    ],
)
def test_wrong_values_are_told_in_plain_words_once(
    changes: dict[str, Any], pointer: str, words: str
) -> None:
    [problem] = refusal(**changes).problems
    assert problem.pointer == pointer
    assert words in problem.detail


def test_a_secret_that_is_no_text_is_not_repeated() -> None:
    error = refusal(secrets={"TOKEN": 271828})
    assert error.problems[0].detail == "must be text"
    assert "271828" not in error.message


def test_a_key_without_end_is_not_echoed_whole() -> None:
    assert len(refusal(**{"x" * 100_000: 1}).message) < 2000


def test_every_problem_is_reported_at_once() -> None:
    error = refusal(global_batch_size=0, seed=-1, nonsense=1)
    assert {p.pointer for p in error.problems} == {"/global_batch_size", "/seed", "/nonsense"}
    assert "(and 2 more)" in error.message


def test_a_missing_key_is_named() -> None:
    with pytest.raises(InvalidSpec, match="global_batch_size: is required"):
        parse_spec({"model": "gpt2-tiny", "data": BLOB})


def test_an_enormous_value_is_not_echoed_whole() -> None:
    assert len(refusal(precision="x" * 100_000).message) < 500


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("24GB", (24 * 10**9, None)),
        ("24GB..80GB", (24 * 10**9, 80 * 10**9)),
        ("24GiB..", (24 * 2**30, None)),
        ("..80GB", (None, 80 * 10**9)),
        ("1.5 GiB .. 2 GiB", (int(1.5 * 2**30), 2 * 2**30)),
    ],
)
def test_memory_ranges(text: str, ends: tuple[int | None, int | None]) -> None:
    assert memory_range(text) == ends


def test_names_are_safe_in_subjects_keys_and_paths() -> None:
    assert "cluster" in RESERVED_PROJECTS
    assert all(is_name(name) for name in ("a", "a-b", "x" * 63, "0"))
    for name in ("", "x" * 64, "-a", "a-", "a.b", "a*", ">", "a b", "A", "a\n", "{frenzy}:x", "é"):
        assert not is_name(name), name


def test_a_received_spec_of_a_newer_client_is_read() -> None:
    newer = json.dumps({**GOOD, "from_the_future": 1, "retry": {"max_retries": 1, "x": 1}})
    assert JobSpec.decode(newer.encode()).retry.max_retries == 1


# -- secrets ----------------------------------------------------------------------------------


def test_secrets_are_variables_with_names() -> None:
    spec = parse_spec({**GOOD, "secrets": {"HF_TOKEN": "hub-token"}})
    assert spec.secrets == {"HF_TOKEN": "hub-token"}
    assert parse_spec(GOOD).secrets == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"secrets": {"PATH": "x"}}, "'PATH' is reserved"),
        ({"secrets": {"FRENZY_X": "x"}}, "'FRENZY_X' is reserved"),
        ({"secrets": {"hf_token": "x"}}, "not an environment name"),
        ({"secrets": {f"V{n}": "x" for n in range(17)}}, "at most 16"),
        ({"secrets": {"A": "x"}, "env": {"A": "y"}}, "'A' is in env and in secrets"),
    ],
)
def test_wrong_secrets_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        parse_spec({**GOOD, **fields})


def test_a_value_given_for_a_name_is_not_repeated() -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec({**GOOD, "secrets": {"HF_TOKEN": "hf_AbC123"}})
    assert "not its value" in refused.value.message
    assert "hf_AbC123" not in f"{refused.value.message} {refused.value.problems}"
