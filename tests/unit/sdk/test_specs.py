"""Specifications as people write them: YAML, local paths, models in files."""

import json

import pytest
from tests.support.api import DIGEST, SPEC

from frenzy.specs import JobSpec, read
from frenzy_shared.errors import InvalidModelConfig, InvalidSpec


def write(folder, text):
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_paths_start_at_the_files_folder(tmp_path):
    (tmp_path / "text").mkdir()
    local = read(write(tmp_path, "model: gpt2-tiny\ndata: text\nglobal_batch_size: 8\n"))
    assert dict(local.paths) == {"data": tmp_path / "text"}
    spec = local.finish({"data": f"blob:{DIGEST}"})
    assert spec.data == f"blob:{DIGEST}"


def test_references_are_left_alone():
    local = read({**SPEC, "tokenizer": "node:/models/t.json"})
    assert dict(local.paths) == {}
    assert local.preview().tokenizer == "node:/models/t.json"


def test_job_spec_takes_local_paths_and_stays_strict(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    spec = JobSpec(model="gpt2-tiny", data=str(tmp_path / "a.txt"), global_batch_size=2)
    assert read(spec).paths == {"data": tmp_path / "a.txt"}
    with pytest.raises(ValueError, match="blob:sha256"):
        JobSpec(model="gpt2-tiny", data="blob:nonsense", global_batch_size=2)


def test_a_missing_path_names_the_field(tmp_path):
    with pytest.raises(InvalidSpec, match="data: no such file or folder") as caught:
        read({**SPEC, "data": str(tmp_path / "absent")})
    assert caught.value.problems[0].pointer == "/data"


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_model_file_becomes_its_contents(tmp_path, as_folder):
    config = {"model_type": "gpt2", "n_embd": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = str(tmp_path if as_folder else tmp_path / "config.json")
    assert read({**SPEC, "model": model}).preview().model == config


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_a_bad_model_file_is_named(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidModelConfig, match="model: .*config.json"):
        read({**SPEC, "model": str(tmp_path / "config.json")})


def test_unknown_keys_are_refused_before_anything_is_packed(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    text = "model: gpt2\ndata: a.txt\nglobal_batchsize: 8\n"
    with pytest.raises(InvalidSpec) as caught:
        read(write(tmp_path, text))
    assert any("did you mean 'global_batch_size'" in p.detail for p in caught.value.problems)


def test_a_file_that_is_no_specification_is_named_with_the_line(tmp_path):
    path = write(tmp_path, "model: gpt2-tiny\nmodel: gpt2\n")
    with pytest.raises(InvalidSpec, match=r"job\.yaml:2: .*model"):
        read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no such file"), (b"\xff\xfe\x00", "not UTF-8"), (b"a" * (2 << 20), "1 MiB")],
)
def test_unreadable_files(tmp_path, content, says):
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidSpec, match=says):
        read(path)
