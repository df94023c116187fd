"""Terms counted by hand on small models; bytes, or bytes a token."""

import pytest
from tests.support.marp_cases import (
    BLOCK,
    EMBEDDING,
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    LORA,
    PARAMETERS,
    case_fields,
)

from frenzy_marp.core.cases.activations import block_bytes
from frenzy_marp.core.cases.case import Run, parse_case
from frenzy_marp.core.cases.geometry import geometries
from frenzy_marp.core.cases.loss import bytes_per_logit
from frenzy_marp.core.cases.prediction import Moment, predict_allocated, predict_moments
from frenzy_marp.core.cases.states import state_bytes


def run(**sections) -> Run:
    return parse_case(case_fields(**sections)).run


def moment(found: Run, name: str) -> Moment:
    return next(part for part in predict_moments(found) if part.name == name)


def term(part: Moment, name: str) -> float:
    return dict(part.terms)[name]


def test_pure_bf16_adamw_peaks_at_the_step_with_ten_bytes_a_parameter():
    """Weights, gradients, two states, and foreach's temporary: 2 + 2 + 4 + 2."""
    peak = predict_allocated(run())
    assert peak.name == "optimizer step"
    assert peak.total == pytest.approx(10 * PARAMETERS)


def test_fsdp_divides_all_of_it():
    sharded = {"sharding": "fsdp", "data": 2, "shard_degree": 2}
    step = moment(run(parallelism=sharded), "optimizer step")
    assert step.total == pytest.approx(5 * PARAMETERS)


def test_fused_fp32_adamw_needs_sixteen_bytes_and_no_temporary():
    fp32 = {
        "param_dtype": "fp32",
        "compute_dtype": "fp32",
        "grad_dtype": "fp32",
        "optimizer_state_dtype": "fp32",
        "optimizer_impl": "fused",
    }
    step = moment(run(training=fp32), "optimizer step")
    assert step.total == pytest.approx(16 * PARAMETERS)


def test_megatron_distributed_optimizer_is_six_bytes_and_twelve_shared():
    training = {
        "framework": "megatron",
        "master_weights": True,
        "grad_dtype": "fp32",
        "optimizer_state_dtype": "fp32",
        "optimizer_impl": "megatron",
    }
    parallelism = {"sharding": "dist_optimizer", "data": 4, "shard_degree": 4}
    step = moment(run(training=training, parallelism=parallelism), "optimizer step")
    assert step.total == pytest.approx((6 + 12 / 4) * PARAMETERS)


@pytest.mark.parametrize(
    ("optimizer", "bytes_a_parameter"),
    [("adamw_8bit", 2), ("adamw_4bit", 1), ("sgd", 0), ("lion", 2), ("adamw", 4)],
)
def test_optimizer_states(optimizer, bytes_a_parameter):
    found = run(training={"optimizer": optimizer})
    states = state_bytes(found, geometries(found)[0])
    assert states.optimizer == pytest.approx(bytes_a_parameter * PARAMETERS)


def test_nf4_with_double_quantisation_stores_just_over_half_a_byte():
    """A scale of a byte for 64 weights, an fp32 scale for 256 of those; embeddings stay 16 bit."""
    training = {
        "method": "qlora",
        "activation_checkpointing": "none",
        "quantization": "nf4_double",
        "lora": LORA,
        "adapter_dtype": "fp32",
    }
    found = run(training=training)
    weights = state_bytes(found, geometries(found)[0]).weights
    matrices = LAYERS * BLOCK * (0.5 + 1 / 64 + 4 / (64 * 256))
    expected = matrices + 2 * EMBEDDING * 2 + 4 * LORA["trainable_parameters"]
    assert weights == pytest.approx(expected, rel=1e-6)


def test_a_checkpointed_block_keeps_its_input_only():
    assert block_bytes(run()).kept == 2 * HIDDEN


def test_k_bit_preparation_makes_the_stream_fp32():
    assert block_bytes(run(training={"kbit_upcast": True})).kept == 4 * HIDDEN


def test_a_hugging_face_llama_block_without_checkpointing():
    """Unfused norms 8 h each; query, key, value, output 8 h; gate, silu, up, product 8 f."""
    kept = block_bytes(run(training={"activation_checkpointing": "none"})).kept
    assert kept == 2 * 8 * HIDDEN + 8 * HIDDEN + 8 * INNER + 4 * HEADS


def test_a_compiled_litgpt_block_keeps_the_whole_projection():
    """Norms 8 h, attention 8 h, the projection 4 h, gate, up and product 6 f, one sum 2 h."""
    training = {
        "framework": "litgpt",
        "activation_checkpointing": "none",
        "compile": True,
        "attention": "sdpa",
    }
    kept = block_bytes(run(training=training)).kept
    assert kept == (8 + 8 + 4 + 2) * HIDDEN + 6 * INNER + 4 * HEADS


def test_every_second_layer_checkpointed_keeps_half():
    whole = block_bytes(run(training={"activation_checkpointing": "none"})).kept
    detail = "selective (every 2nd layer)"
    training = {"activation_checkpointing": "selective", "checkpointing_detail": detail}
    assert block_bytes(run(training=training)).kept == (whole + 2 * HIDDEN) / 2


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"loss": "eager", "logits_dtype": "fp32"}, 2 + 3 * 4),
        ({"loss": "eager", "logits_dtype": "bf16"}, 4 * 2),
        ({"loss": "vocab_parallel", "logits_dtype": "fp32", "framework": "megatron"}, 2 + 4 + 2),
        ({"loss": "fused", "logits_dtype": "bf16", "framework": "torchtitan"}, 2 * 2),
    ],
)
def test_bytes_of_a_logit(training, expected):
    assert bytes_per_logit(run(training=training)) == expected


@pytest.mark.parametrize(
    ("rank", "virtual", "in_flight"),
    [("rank0", None, 4), ("last_stage", None, 1), ("last_stage", 8, 29 / 8)],
)
def test_micro_batches_in_flight(rank, virtual, in_flight):
    found = run(
        measured={"rank": rank},
        training={"gradient_accumulation_steps": 8},
        parallelism={"pipeline": 4, "virtual_pipeline": virtual},
    )
    assert geometries(found)[0].in_flight == in_flight


def test_first_and_last_stage_hold_the_vocabulary():
    first = geometries(run(parallelism={"pipeline": 2}))[0]
    last = geometries(run(measured={"rank": "last_stage"}, parallelism={"pipeline": 2}))[0]
    assert (first.embedding, first.head) == (EMBEDDING, 0)
    assert (last.embedding, last.head) == (0, EMBEDDING)


def test_experts_are_divided_by_expert_parallelism_only():
    model = {
        "family": "mixtral",
        "num_experts": 8,
        "experts_per_token": 2,
        "expert_intermediate_size": INNER,
        "num_parameters": 2 * EMBEDDING + LAYERS * (4 * HIDDEN**2 + 8 * 3 * HIDDEN * INNER),
    }
    part = geometries(run(model=model, parallelism={"expert": 4, "data": 4}))[0]
    assert part.dense == 4 * HIDDEN**2
    assert part.experts == 2 * 3 * HIDDEN * INNER


def test_fsdp2_gathers_the_head_for_the_loss_and_two_blocks_in_backward():
    sharded = {"sharding": "fsdp2", "data": 2, "shard_degree": 2}
    found = run(training={"framework": "torchtitan"}, parallelism=sharded)
    assert term(moment(found, "loss"), "gathered weights") == 2 * (EMBEDDING + BLOCK)
    backward = moment(found, "last block's backward")
    assert term(backward, "gathered weights") == 2 * 2 * BLOCK


def test_fsdp1_with_adapters_still_holds_the_other_inputs_at_the_end_of_backward():
    training = {"method": "lora", "lora": LORA, "adapter_dtype": "fp32", "sequence_length": 4096}
    sharded = {"sharding": "fsdp", "data": 2, "shard_degree": 2}
    last = moment(run(training=training, parallelism=sharded), "first block's backward")
    assert term(last, "retained inputs") == 2 * (LAYERS - 1) * 2 * HIDDEN * 4096


def kept_by_lora(quantization, torch_version):
    training = {
        "method": "qlora",
        "activation_checkpointing": "none",
        "lora": LORA,
        "adapter_dtype": "bf16",
        "quantization": quantization,
        "torch_version": torch_version,
    }
    return block_bytes(run(training=training)).kept


def test_early_bitsandbytes_keeps_inputs_of_frozen_matrices():
    """The second norm's output and the MLP's product; the attention's output is kept anyway."""
    fixed, early = kept_by_lora("nf4", "2.4.1"), kept_by_lora("nf4", "2.2.0")
    assert early - fixed == pytest.approx(2 * HIDDEN + 2 * INNER)
    assert kept_by_lora("gptq4", "2.2.0") == fixed
    assert kept_by_lora("int8", "2.4.1") == early


def test_fsdp1_makes_one_gradient_of_all_that_is_outside_the_blocks():
    """Its pieces wait for each other: embedding and head, twice, in 16 bit."""
    sharded = {"sharding": "fsdp", "data": 2, "shard_degree": 2}
    found = run(parallelism=sharded, gpu={"count": 2})
    end = moment(found, "end of backward")
    assert term(end, "gradients put together") == pytest.approx(2 * 2 * EMBEDDING * 2)
    whole = moment(run(), "end of backward")
    assert term(whole, "gradients put together") == 0


def test_fsdp2_copies_the_embeddings_gradient_for_its_reduction():
    sharded = {"sharding": "fsdp2", "data": 2, "shard_degree": 2, "reduce_dtype": "fp32"}
    end = moment(run(parallelism=sharded, gpu={"count": 2}), "end of backward")
    assert term(end, "gradients put together") == pytest.approx((2 + 4) * EMBEDDING)
    assert term(end, "gathered weights") == pytest.approx(2 * EMBEDDING)


def test_deepspeed_casts_the_largest_gradient_before_it_adds_it():
    training = {
        "framework": "megatron_deepspeed",
        "master_weights": True,
        "grad_dtype": "fp32",
        "optimizer_state_dtype": "fp32",
    }
    end = moment(run(training=training), "end of backward")
    assert term(end, "gradients put together") == pytest.approx(4 * EMBEDDING)


def test_fsdp1_peaks_as_it_does_in_torch():
    """28.0 MiB at the end of backward: torch 2.13's FSDP, four ranks, transformers' Llama in bf16.

    Counted by the trainer's accountant under a fake process group: hidden 256, 8 layers, 4 heads,
    inner 768, 4096 tokens of vocabulary, AdamW with foreach, one sequence of 16 tokens.
    """
    found = run(
        gpu={"count": 4},
        model={
            "hidden_size": 256,
            "num_layers": 8,
            "num_heads": 4,
            "num_kv_heads": 4,
            "head_dim": 64,
            "intermediate_size": 768,
            "vocab_size": 4096,
            "num_parameters": 8_917_248,
        },
        training={"sequence_length": 16, "loss": "eager", "torch_version": "2.13.0"},
        parallelism={"data": 4, "sharding": "fsdp", "shard_degree": 4, "reduce_dtype": "bf16"},
    )
    peak = predict_allocated(found)
    assert peak.name == "end of backward"
    assert peak.total / 2**20 == pytest.approx(28.0, rel=0.02)


def test_a_pipeline_stage_may_have_no_layer():
    stages = {"data": 1, "pipeline": 3, "pipeline_layers": [2, 0, 2]}
    found = run(parallelism=stages, gpu={"count": 3})
    assert predict_allocated(found).total > 0


def test_adapters_with_dropout_keep_a_mask_and_their_own_dropped_input():
    """3 bytes for each of query and value, where without dropout they share one input of 2."""
    training = {
        "method": "lora",
        "adapter_dtype": "bf16",
        "activation_checkpointing": "none",
        "loss": "eager",
    }

    def kept(dropout):
        lora = {**LORA, "dropout": dropout}
        return block_bytes(run(training={**training, "lora": lora})).kept

    assert kept(0.1) - kept(0.0) == pytest.approx(2 * 3 * HIDDEN - 2 * HIDDEN)
