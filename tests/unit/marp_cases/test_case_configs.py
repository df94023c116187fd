"""Models that only the predictor of public runs knows, from their configurations."""

import pytest
from tests.support.planning import gpu as kind_of

from frenzy_marp.core.breakdown import exact_plan
from frenzy_marp.core.cases.case import CaseModel
from frenzy_marp.core.cases.configs import KNOWN, case_model
from frenzy_marp.core.cases.question import answer, run_of
from frenzy_marp.core.cases.vocabulary import Family, Norm
from frenzy_marp.core.learning import Experience
from frenzy_marp.core.memory.analytical import predict_peak
from frenzy_marp.estimates import estimate_view
from frenzy_shared.catalog.estimated import ESTIMATED, ESTIMATED_TYPES
from frenzy_shared.catalog.models import architecture_from_config, resolve_model
from frenzy_shared.domain.model import Attention
from frenzy_shared.errors import InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.estimate import EstimateRequest
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

# What the models' authors publish (safetensors totals on their pages). DeepSeek-V3's has 14,848
# biases of routers more, which are no weights that are trained.
PUBLISHED = {
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "bert-base": 109_514_298,
    "t5-base": 222_903_552,
    "t5-3b": 2_851_598_336,
}


def view(gpu="H100 SXM5 80GB", **fields):
    spec = {"data": "node:/x", "global_batch_size": 8, "sequence_length": 512, **fields}
    return estimate_view(EstimateRequest(spec=parse_spec(spec), gpu=gpu), (), Experience())


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_published_parameter_counts(name, parameters):
    model = case_model(resolve_model(name))
    assert model is not None
    assert model.num_parameters == parameters


def test_every_such_preset_has_a_reader_and_no_plan():
    assert ESTIMATED_TYPES == KNOWN
    for name in ESTIMATED:
        with pytest.raises(InvalidModelConfig, match="frenzy estimate"):
            architecture_from_config(resolve_model(name))
    assert case_model(resolve_model("llama-2-7b")) is None


def test_an_estimate_has_all_that_a_view_shows():
    found = view(model="deepseek-v2-lite", resources={"gpus": 8, "zero_stage": 3})
    assert (found.family, found.parameters) == ("deepseek", 15_706_484_224)
    assert found.memory.allocated.low < found.memory.allocated.expected
    assert found.memory.required.expected > found.memory.allocated.expected
    assert sum(term.size_bytes for term in found.memory.terms) == found.memory.allocated.expected
    assert max(moment.allocated for moment in found.moments) == pytest.approx(
        found.memory.allocated.expected, rel=1e-6
    )
    assert found.fits is (found.memory.required.high <= found.capacity_bytes)
    assert found.oom_probability is not None
    assert found.pinned == ("resources.gpus", "resources.zero_stage")


def test_more_gpus_share_the_states_and_less_memory_fits_less():
    few, many = (
        view(model="deepseek-v2-lite", resources={"gpus": count, "zero_stage": 3})
        for count in (2, 8)
    )
    assert many.memory.allocated.expected < few.memory.allocated.expected
    small = view(model="t5-3b", gpu="T4")
    assert small.fits is False
    assert small.oom_probability > 0.9


@pytest.mark.parametrize("stage", [1, 3])
def test_it_agrees_with_the_planner_on_a_mixture_that_both_know(stage):
    spec = {
        "model": "olmoe-1b-7b",
        "data": "node:/x",
        "global_batch_size": 8,
        "sequence_length": 1024,
        "resources": {"gpus": 4, "zero_stage": stage, "micro_batch_size": 2},
    }
    setup = training_setup(parse_spec(spec))
    plan = exact_plan(setup, None)
    model = setup.model
    same = CaseModel(
        family=Family.OTHER,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        intermediate_size=model.intermediate_size,
        vocab_size=model.vocab_size,
        tied_embeddings=False,
        gated_mlp=True,
        norm=Norm.RMS,
        num_experts=64,
        experts_per_token=8,
        expert_intermediate_size=model.intermediate_size,
        num_parameters=model.num_parameters,
    )
    run = run_of(same, plan, length=1024, attention=Attention.SDPA, gpu=None, capacity_bytes=None)
    memory, _, _ = answer(run)
    planned = predict_peak(model, Attention.SDPA, 1024, plan, cuda=True)
    assert memory.allocated.expected == pytest.approx(planned.allocated, rel=0.06)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": "deepseek-v3", "method": "lora"}, InvalidSpec, "method: lora is not predicted"),
        ({"model": "t5-3b", "resources": {"pipeline": 2}}, InvalidSpec, "pipeline"),
        ({"model": {**ESTIMATED["deepseek-v3"], "kv_lora_rank": 0}}, InvalidModelConfig, "kv_lora"),
        (
            {"model": {**ESTIMATED["deepseek-v3"], "first_k_dense_replace": 99}},
            InvalidModelConfig,
            "first_k_dense_replace",
        ),
        (
            {"model": {**ESTIMATED["qwen1.5-moe-a2.7b"], "num_experts_per_tok": 61}},
            InvalidModelConfig,
            "61 of 60 experts",
        ),
    ],
)
def test_errors_name_the_field(fields, error, message):
    with pytest.raises(error, match=message):
        view(**fields)


def test_a_kind_of_the_cluster_counts_as_its_nodes_measured_it():
    known = kind_of("A100 80GB SXM", 1)
    spec = {"model": "bert-large", "data": "node:/x", "global_batch_size": 8}
    asked = EstimateRequest(spec=parse_spec(spec), gpu=known.kind)
    assert estimate_view(asked, (known,), Experience()).capacity_bytes == known.memory_bytes
