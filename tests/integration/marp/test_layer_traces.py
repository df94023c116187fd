"""Models put together from the trace of one layer, against the formulas and against the engine."""

import pytest

from frenzy_marp.adapters.traced import coefficients_of
from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.memory.analytical import predict_peak
from frenzy_marp.core.memory.predictor import Sharding
from frenzy_shared.catalog.models import architecture_from_config
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, ParallelismPlan, Precision
from frenzy_shared.errors import InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.trace import TraceRequest
from frenzy_trainer.trace.layers import trace_layers
from frenzy_trainer.trace.models import ModelSource

GPT2 = {"model_type": "gpt2", "n_embd": 256, "n_layer": 10, "n_head": 8, "vocab_size": 2000}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "tie_word_embeddings": True,
}
MIXTURE = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
BATCH, LENGTH = 4, 128


def request(model, checkpointing="none", **changes):
    return TraceRequest(
        model=model,
        sequence_length=LENGTH,
        micro_batch_size=BATCH,
        precision="bf16",
        checkpointing=checkpointing,
        **changes,
    )


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_one_trace_says_what_the_formulas_say_of_any_depth_and_sharding(model, checkpointing):
    traced = trace_layers(ModelSource(request(model, checkpointing)))
    assert abs(traced.error) < 0.001
    coefficients = coefficients_of(traced)
    architecture = architecture_from_config(model)
    bucket = bucket_elements(architecture)
    assert coefficients.parameters(architecture.num_layers) == architecture.num_parameters
    for stage, ranks, accumulation in ((0, 1, 1), (1, 2, 1), (2, 4, 2), (3, 1, 1)):
        plan = ParallelismPlan(
            zero_stage=stage,
            data=ranks,
            tensor=1,
            pipeline=1,
            micro_batch_size=BATCH,
            gradient_accumulation_steps=accumulation,
            precision=Precision.BF16,
            activation_checkpointing=ActivationCheckpointing(checkpointing),
            reduce_bucket_elements=bucket,
        )
        formula = predict_peak(architecture, Attention.SDPA, LENGTH, plan).allocated
        sharding = Sharding(stage=stage, ranks=ranks, accumulates=accumulation > 1, cuda=False)
        peaks = coefficients.peaks(architecture.num_layers, sharding, element=2, bucket=bucket)
        for peak in peaks:
            assert sum(term.size_bytes for term in peak.terms) == peak.allocated
        highest = max(peak.allocated for peak in peaks)
        assert highest == pytest.approx(formula, rel=0.01), (stage, ranks)


def test_a_family_without_formulas_has_coefficients_too():
    traced = trace_layers(ModelSource(request(MIXTURE)))
    assert abs(traced.error) < 0.01
    assert sum(traced.layer.parameters) > 3 * 3 * 256 * 1024  # more than three experts
    assert traced.layer.kept_bytes > 0


def test_weights_gathered_inside_a_layer_are_left_to_the_engine():
    coefficients = coefficients_of(trace_layers(ModelSource(request(LLAMA))))
    sharding = Sharding(stage=3, ranks=2, accumulates=False, cuda=False)
    with pytest.raises(InvalidSpec, match="trace the engine"):
        coefficients.peaks(12, sharding, element=2, bucket=10**6)


def test_a_model_whose_depth_is_no_number_is_refused():
    model = {name: value for name, value in LLAMA.items() if name != "num_hidden_layers"}
    with pytest.raises(InvalidModelConfig, match="num_hidden_layers"):
        trace_layers(ModelSource(request(model)))
