"""``frenzy estimate --mode traced``: what is asked of the tracer, and what is shown."""

import json

import pytest
import yaml

from frenzy import offline
from frenzy_marp.adapters.tracing import TraceFailed
from frenzy_shared.messages.trace import EngineTrace, LayersTrace

ENGINE = {
    "parameters": 4242,
    "rank": 0,
    "moments": [
        {
            "name": "initialisation",
            "size_bytes": 90,
            "terms": [{"name": "weights", "size_bytes": 90}],
        },
        {
            "name": "backward",
            "size_bytes": 900,
            "terms": [
                {"name": "weights", "size_bytes": 400},
                {"name": "saved activations", "size_bytes": 500},
            ],
        },
    ],
    "config": {"zero_optimization": {"reduce_bucket_size": 1000}},
}
LAYERS = {
    "layer": {
        "kept_bytes": 1000,
        "forward_peak_bytes": 0,
        "parameters": [10, 20],
        "peaks": [5, 6, 7],
        "handing": [5, 6],
    },
    "ends": {
        "kept_bytes": 0,
        "forward_peak_bytes": 50_000,
        "parameters": [40, 100],
        "peaks": [9, 9, 9],
        "handing": [9, 9],
    },
    "head_parameters": 1,
    "error": 0.0,
}
MIXTURE = {
    "model_type": "granitemoe",
    "hidden_size": 64,
    "num_local_experts": 4,
    "max_position_embeddings": 96,
}


@pytest.fixture
def asked(monkeypatch):
    """What was asked of a tracer that answers at once."""
    found = []

    class Tracer:
        def __init__(self, *, allow_code):
            self.allow_code = allow_code

        def engine(self, request):
            found.append((request, self.allow_code))
            return EngineTrace.model_validate(ENGINE)

        def layers(self, request):
            found.append((request, self.allow_code))
            return LayersTrace.model_validate(LAYERS)

    monkeypatch.setattr(offline, "Tracer", Tracer)
    return found


@pytest.fixture
def estimate(cli):
    def run(*arguments):
        result = cli("estimate", *arguments, "-o", "json")
        assert result.code == 0, result.err
        return json.loads(result.out)

    return run


def test_the_planners_own_configuration_is_traced(estimate, asked):
    found = estimate("gpt2", "--mode", "traced", "--zero", "2", "--gpus", "4", "--gpu", "A30")
    request, allow_code = asked[0]
    assert request.engine.ranks == 4
    assert request.engine.config["zero_optimization"]["stage"] == 2
    assert request.engine.config["zero_optimization"]["reduce_bucket_size"] > 10**6
    assert request.model["model_type"] == "gpt2"
    assert allow_code is False
    assert found["parameters"] == 4242
    assert found["memory"]["mode"] == "traced"
    assert found["memory"]["moment"] == "backward"
    assert found["memory"]["allocated"]["expected"] == 900
    assert [moment["moment"] for moment in found["moments"]] == ["initialisation", "backward"]


def test_gpus_update_all_tensors_at_once(estimate, asked):
    estimate("gpt2", "--mode", "traced")
    assert asked[0][0].engine.config["optimizer"]["params"]["foreach"] is True


def test_what_a_gpu_gathers_ahead_is_added_by_formula(estimate, asked):
    found = estimate("gpt2", "--mode", "traced", "--zero", "3", "--gpus", "2")
    terms = {term["name"]: term["size_bytes"] for term in found["memory"]["terms"]}
    assert terms["gathered ahead (formula)"] == 2 * 1000 * 2
    assert found["moments"][0]["allocated"] == 90
    assert sum(terms.values()) == found["memory"]["allocated"]["expected"] == 4900


def test_a_family_without_formulas_is_traced_with_sizes_of_its_own(estimate, asked, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MIXTURE))
    found = estimate(str(config), "--mode", "traced", "--zero", "3")
    request, _ = asked[0]
    assert request.engine.config["zero_optimization"]["reduce_bucket_size"] == "auto"
    assert request.model == MIXTURE
    assert request.sequence_length == found["sequence_length"] == 96
    assert found["plan"]["reduce_bucket_elements"] == 1000


def test_a_known_family_with_impossible_sizes_never_reaches_the_tracer(cli, asked, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "hidden_size": -1}))
    result = cli("estimate", str(config), "--mode", "traced")
    assert result.code == 1
    assert "hidden_size" in result.err
    assert asked == []


def test_a_factory_of_the_user_is_traced_without_asking(cli, asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli("estimate", "mine.models:make", "--seq", "64", "--micro-batch", "2")
    request, allow_code = asked[0]
    assert allow_code is True
    assert request.factory.target == "mine.models:make"
    assert request.factory.folder == str(tmp_path)
    assert request.model is None
    assert (request.sequence_length, request.micro_batch_size) == (64, 2)
    assert "mine.models:make, 4,242 parameters" in result.out
    assert "traced" in result.out
    assert "frenzy-2024" not in result.out


def test_a_model_is_put_together_from_one_layer(estimate, asked, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**MIXTURE, "num_hidden_layers": 5}))
    found = estimate(str(config), "--mode", "traced-layers", "--zero", "1", "--gpus", "2")
    assert asked[0][0].engine is None
    assert found["parameters"] == 40 + 100 + 5 * 30
    assert found["memory"]["mode"] == "traced-layers"
    assert found["memory"]["moment"] == "the loss"
    terms = {term["name"]: term["size_bytes"] for term in found["memory"]["terms"]}
    assert terms["activations (traced)"] == 5 * 1000 + 50_000
    assert found["plan"]["reduce_bucket_elements"] == 30


def test_a_factory_has_no_other_depth(cli, asked):
    result = cli("estimate", "mine:make", "--mode", "traced-layers")
    assert result.code == 1
    assert "--mode traced" in result.err
    assert asked == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gpt2", "--mode", "guessed"), "one of: analytical, traced, traced-layers"),
        (("mine:make", "--mode", "analytical"), "--mode traced"),
    ],
)
def test_a_mode_that_does_not_fit_is_refused(cli, asked, arguments, says):
    result = cli("estimate", *arguments)
    assert result.code == 1
    assert says in result.err
    assert asked == []


def test_a_job_file_is_traced_with_its_pins(estimate, asked, tmp_path):
    path = tmp_path / "job.yaml"
    pins = {"gpus": 2, "zero_stage": 1, "micro_batch_size": 2}
    job = {"model": "gpt2", "data": "node:/x", "global_batch_size": 8, "resources": pins}
    path.write_text(yaml.safe_dump({**job, "max_steps": 1}))
    estimate("-f", str(path), "--mode", "traced")
    engine = asked[0][0].engine
    assert engine.config["gradient_accumulation_steps"] == 2
    assert engine.steps == 1


def test_a_failed_trace_is_an_error_with_a_remedy(cli, monkeypatch):
    def fail(*_):
        raise TraceFailed("the trace took longer than 120 s and was stopped", suggestions=["wait"])

    monkeypatch.setattr("frenzy_marp.adapters.tracing.Tracer.engine", fail)
    result = cli("estimate", "gpt2", "--mode", "traced")
    assert result.code == 1
    assert "longer than 120 s" in result.err
    assert "wait" in result.err
