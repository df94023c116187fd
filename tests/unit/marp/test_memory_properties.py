"""What must hold for the memory of any plan."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from frenzy_marp.core.candidates import divisors
from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.memory.analytical import predict_moments, predict_peak
from frenzy_shared.catalog.models import architecture_from_config
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, ParallelismPlan, Precision


@st.composite
def models(draw):
    heads = draw(st.sampled_from([1, 2, 4]))
    width = heads * draw(st.sampled_from([8, 16, 64]))
    shared = {"vocab_size": draw(st.sampled_from([64, 256, 5000]))}
    layers = draw(st.integers(1, 5))
    tied = draw(st.booleans())
    if draw(st.booleans()):
        config = {
            "model_type": "gpt2",
            "n_embd": width,
            "n_layer": layers,
            "n_head": heads,
            "n_positions": 128,
            "activation_function": draw(st.sampled_from(["gelu_new", "gelu", "relu"])),
        }
    else:
        config = {
            "model_type": "llama",
            "hidden_size": width,
            "intermediate_size": width * draw(st.integers(1, 4)),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": draw(st.sampled_from(divisors(heads))),
            "attention_bias": draw(st.booleans()),
            "mlp_bias": draw(st.booleans()),
        }
    return architecture_from_config({**config, **shared, "tie_word_embeddings": tied})


@st.composite
def plans(draw, model):
    return ParallelismPlan(
        zero_stage=draw(st.integers(0, 3)),
        data=draw(st.sampled_from([1, 2, 4, 8])),
        tensor=1,
        pipeline=1,
        micro_batch_size=draw(st.integers(1, 4)),
        gradient_accumulation_steps=draw(st.integers(1, 3)),
        precision=draw(st.sampled_from([Precision.FP32, Precision.BF16])),
        activation_checkpointing=draw(st.sampled_from(list(ActivationCheckpointing))),
        reduce_bucket_elements=draw(st.sampled_from([bucket_elements(model), 1000])),
    )


def peak(model, attention, length, plan):
    predicted = predict_peak(model, attention, length, plan)
    assert predicted.allocated == sum(term.size_bytes for term in predicted.terms)
    return predicted.allocated


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), model=models(), attention=st.sampled_from(list(Attention)))
def test_more_of_anything_never_needs_less(data, model, attention):
    plan = data.draw(plans(model))
    here = peak(model, attention, 64, plan)
    assert here >= model.num_parameters * 2 // (plan.data if plan.zero_stage == 3 else 1)
    more = replace(plan, micro_batch_size=plan.micro_batch_size + 1)
    assert peak(model, attention, 64, more) >= here
    assert peak(model, attention, 80, plan) >= here
    if plan.zero_stage not in {1, 2}:  # there a rank keeps whole what its border cuts: it moves
        deeper = replace(model, num_layers=model.num_layers + 1)
        assert peak(deeper, attention, 64, plan) >= here


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), model=models())
def test_more_ranks_never_need_more_once_there_are_several(data, model):
    plan = replace(data.draw(plans(model)), data=2)
    two = peak(model, Attention.SDPA, 64, plan)
    four = peak(model, Attention.SDPA, 64, replace(plan, data=4))
    # Padding and borders between ranks cost a few parameters.
    assert four <= two + 4 * 512 + 64 * model.hidden_size


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), model=models())
def test_a_single_step_needs_at_most_what_many_need_and_at_least_the_step(data, model):
    plan = data.draw(plans(model))
    many = predict_moments(model, Attention.SDPA, 64, plan)
    one = predict_moments(model, Attention.SDPA, 64, plan, single_step=True)
    late = plan.zero_stage > 0 or plan.precision is Precision.FP32
    for usual, only in zip(many, one, strict=True):
        assert sum(term.size_bytes for term in only.terms) == only.allocated
        unchanged = usual.moment in {"the optimizer step", "initialisation"} or not late
        moments = 0 if unchanged else 2 * 4 * model.num_parameters // max(1, plan.data)
        assert usual.allocated - only.allocated >= moments
        assert (usual.allocated == only.allocated) is unchanged
