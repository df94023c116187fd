"""Estimates and plans without a server."""

import json
from dataclasses import replace

import pytest
import yaml
from tests.support.api import ok

from frenzy.cli.commands import estimate
from frenzy_marp.core.learning import Experience
from frenzy_marp.estimates import estimate_view
from frenzy_shared.catalog.gpus import use_own_gpus
from frenzy_shared.messages.estimate import EstimateRequest, Overrides
from frenzy_shared.messages.spec import parse_spec

JOB = {
    "model": "gpt2",
    "data": "node:/text",
    "global_batch_size": 16,
    "sequence_length": 512,
    "resources": {"gpus": 2, "zero_stage": 2, "micro_batch_size": 4},
}


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return str(path)


@pytest.fixture
def cluster_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: [{kind: T4, gpus: 4, count: 2}, {kind: A100 SXM4 80GB, gpus: 8}]")
    return str(path)


def asked(cli, *arguments):
    result = cli("estimate", *arguments, "-o", "json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_the_smallest_gpus_are_named_when_none_is(cli):
    result = cli("estimate", "gpt2")
    assert result.code == 0
    for text in ("124,439,808 parameters", "any CUDA GPU", "ZeRO-1", "Adam moments", "required"):
        assert text in result.out
    assert "the optimizer step" in result.out
    assert "smallest GPUs that hold it: RTX" in result.out


def test_every_moment_is_below_the_peak_and_terms_add_up(cli):
    found = asked(cli, "gpt2", "--gpu", "A30", "--micro-batch", "4", "--zero", "0")
    peak = found["memory"]["allocated"]["expected"]
    assert max(moment["allocated"] for moment in found["moments"]) == peak
    for moment in found["moments"]:
        assert sum(term["size_bytes"] for term in moment["terms"]) == moment["allocated"]
    assert found["gpu"] == "A30"
    assert found["fits"] is True
    assert found["plan"]["zero_stage"] == 0


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["--gpus", "4"], "data", 4),
        (["--accumulation", "3"], "gradient_accumulation_steps", 3),
        (["--precision", "fp32"], "precision", "fp32"),
        (["--checkpointing", "full"], "activation_checkpointing", "full"),
        (["--zero", "3"], "zero_stage", 3),
    ],
)
def test_options_are_obeyed(cli, options, field, value):
    assert asked(cli, "gpt2", *options)["plan"][field] == value


def test_a_job_file_is_estimated_with_its_pins_and_options_change_them(cli, job_file):
    plan = asked(cli, "-f", job_file)["plan"]
    assert (plan["data"], plan["zero_stage"], plan["micro_batch_size"]) == (2, 2, 4)
    assert plan["gradient_accumulation_steps"] == 2
    changed = asked(cli, "-f", job_file, "--micro-batch", "8", "--seq", "128")
    assert changed["plan"]["gradient_accumulation_steps"] == 1
    assert changed["sequence_length"] == 128


def test_a_gpu_that_is_too_small_is_short_of_something(cli):
    result = cli("estimate", "llama-3.1-8b", "--gpu", "RTX 3070")
    assert result.code == 0
    assert "does not fit RTX 3070: short of" in result.out


def test_people_need_not_know_the_driver_s_name(cli):
    assert asked(cli, "gpt2", "--gpu", "a100 sxm4 80gb")["gpu"] == "A100 SXM4 80GB"
    several = cli("estimate", "gpt2", "--gpu", "a100")
    assert several.code == 1
    assert "several GPUs match 'a100'" in several.err
    assert "A100 PCIe 40GB" in several.err
    assert "no GPU is called 'xyz'" in cli("estimate", "gpt2", "--gpu", "xyz").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a MODEL or -f FILE"),
        (["gpt3"], "no preset is called 'gpt3'"),
        (["gpt2", "--seq", "4096"], "above the model's 1024 learned positions"),
        (["gpt2", "--gpu", "T4", "--precision", "bf16"], "T4 does not compute in bf16"),
        (["gpt2", "--attention", "magic"], "attention"),
    ],
)
def test_what_cannot_be_estimated_is_an_error(cli, arguments, message):
    result = cli("estimate", *arguments)
    assert result.code == 1
    assert message in result.err


def test_pins_that_do_not_divide_the_batch_are_an_error(cli, job_file):
    assert "does not divide the 8" in cli("estimate", "-f", job_file, "--micro-batch", "3").err
    assert "split evenly over 3" in cli("estimate", "-f", job_file, "--gpus", "3").err


def test_a_plan_for_a_cluster_file_needs_no_server(cli, job_file, cluster_file):
    result = cli("plan", "-f", job_file, "--cluster", cluster_file)
    assert result.code == 0
    assert "2 x A100 SXM4 80GB, ZeRO-2, micro-batch 4" in result.out
    assert "of 80.0 GiB" in result.out
    listed = cli("plan", "-f", job_file, "--cluster", cluster_file, "-o", "json")
    kinds = {plan["kind"] for plan in json.loads(listed.out)["plans"]}
    assert kinds == {"T4", "A100 SXM4 80GB"}


def test_a_cluster_that_can_never_run_the_job_is_exit_104(cli, tmp_path, cluster_file):
    path = tmp_path / "large.yaml"
    path.write_text(yaml.safe_dump({**JOB, "model": "llama-3.1-405b"}))
    result = cli("plan", "-f", str(path), "--cluster", cluster_file)
    assert result.code == 104
    assert "short of" in result.out


def test_a_wrong_cluster_file_says_where(cli, job_file, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("nodes: [{kind: T5, gpus: 1}]")
    result = cli("plan", "-f", job_file, "--cluster", str(path))
    assert result.code == 1
    assert "no GPU is called 'T5'" in result.err


def test_the_bare_client_says_which_extra_it_needs(cli, job_file, cluster_file, monkeypatch):
    monkeypatch.setattr(estimate, "find_spec", lambda name: None)
    for arguments in (["estimate", "gpt2"], ["plan", "-f", job_file, "--cluster", cluster_file]):
        result = cli(*arguments)
        assert result.code == 1
        assert "needs numpy" in result.err
        assert "pip install '.[server]'" in result.err


def test_the_published_formula_stands_beside(cli):
    # 20 W with W = V h + l (12 h^2 + 13 h), and s b h l (34 + 5 a s / h) for one device.
    parameters = 50_257 * 768 + 12 * (12 * 768**2 + 13 * 768)
    activations = 1024 * 768 * 12 * 34 + 5 * 1024 * 12 * 12 * 1024
    assert asked(cli, "gpt2")["frenzy_2024_bytes"] == 20 * parameters + activations


@pytest.fixture
def learned():
    """What a server answers that has seen runs."""
    request = EstimateRequest(
        spec=parse_spec({**JOB, "data": "node:/x"}), gpu="A100 SXM4 80GB", overrides=Overrides()
    )
    found = estimate_view(request, (), Experience())
    memory = replace(found.memory, mode="learned", runs=7)
    return found.model_copy(update={"memory": memory, "oom_probability": 0.021})


def test_the_server_is_asked_when_told_to(cli, learned, job_file):
    cli.api.on("POST", "/estimates", ok(learned))
    result = cli("estimate", "-f", job_file, "--server", "--gpu", "A100 SXM4 80GB", "--zero", "3")
    assert result.code == 0
    for text in ("learned from 7 runs", "2.1 % risk", "tokens/s", "of RAM per rank", "by you:"):
        assert text in result.out
    body = json.loads(cli.api.requests[0].content)
    assert (body["gpu"], body["overrides"]) == ("A100 SXM4 80GB", {"zero_stage": 3})
    assert body["spec"]["global_batch_size"] == 16


def test_a_gpu_of_ones_own_is_estimated_offline_too(cli, monkeypatch, tmp_path):
    path = tmp_path / "catalog.yaml"
    path.write_text(
        "gpus: [{name: Own 9GB, memory: 9GiB, tensor_tflops: 50, fp32_tflops: 20,"
        " bandwidth_gb_s: 400, compute_capability: '8.6'}]"
    )
    monkeypatch.setenv("FRENZY_CATALOG", str(path))
    found = asked(cli, "gpt2", "--gpu", "own 9gb")
    assert (found["gpu"], found["capacity_bytes"]) == ("Own 9GB", 9 * 2**30)
    use_own_gpus(())


@pytest.mark.parametrize("asked", [("gpt2", "--mode", "traced"), ("my.models:build",)])
def test_the_server_is_not_asked_to_trace(cli, asked):
    refused = cli("estimate", *asked, "--server")
    assert (refused.code, cli.api.requests) == (1, [])
    assert "it traces nothing" in refused.err
    assert "leave --server out" in refused.err


def test_a_config_with_what_is_no_number_is_refused(cli, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "mixtral", "num_local_experts": NaN}')
    found = cli("estimate", str(config))
    assert found.code == 1
    assert "config.json is not JSON: NaN is no number that JSON has" in found.err
