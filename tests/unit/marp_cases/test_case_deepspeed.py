"""Whole peaks under DeepSpeed against ``core/memory``, which agrees with real runs within 1 %.

Two codes with one subject: that one follows the engine call by call and ranks plans, the cases'
terms are a dozen formulas for any framework. Where both can say what a run takes, they agree.
ZeRO-3 is compared with large models only: the plans switch off the reuse that users have on.
"""

import pytest
from tests.support.marp_cases import case_fields
from tests.support.planning import setup

from frenzy_marp.core.breakdown import breakdown, exact_plan
from frenzy_marp.core.cases.case import parse_case
from frenzy_marp.core.cases.overhead import GIB
from frenzy_marp.core.cases.prediction import predict_allocated
from frenzy_shared.catalog.gpus import find_gpu

DEVICES, SEQUENCES, LENGTH = 4, 2, 1024
CELLS = [
    (model, stage, accumulation, checkpointing)
    for model, stages in (
        ("gpt2", (1, 2)),
        ("llama-3.2-1b", (1, 2)),
        ("llama-3.1-8b", (1, 2, 3)),
    )
    for stage in stages
    for accumulation in (1, 4)
    for checkpointing in ("none", "full")
]


MODULES = {"q_proj": "q", "v_proj": "v"}
EVERY_MODULE = {
    **MODULES,
    "k_proj": "k",
    "o_proj": "o",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
}


def run_of(model, plan, stage, accumulation, checkpointing, **training):
    gpt2 = model.max_positions is not None
    fields = case_fields(
        gpu={"count": DEVICES},
        model={
            "family": "gpt2" if gpt2 else "llama",
            "hidden_size": model.hidden_size,
            "num_layers": model.num_layers,
            "num_heads": model.num_heads,
            "num_kv_heads": model.num_kv_heads,
            "head_dim": model.head_dim,
            "intermediate_size": model.intermediate_size,
            "vocab_size": model.vocab_size,
            "max_positions": model.max_positions,
            "tied_embeddings": model.tied_embeddings,
            "gated_mlp": not gpt2,
            "norm": "layer" if gpt2 else "rms",
            "num_parameters": model.num_parameters - model.adapter_parameters,
        },
        training={
            "framework": "deepspeed",
            "sequence_length": LENGTH,
            "micro_batch_size": SEQUENCES,
            "gradient_accumulation_steps": accumulation,
            "master_weights": True,
            "optimizer_state_dtype": "fp32",
            "optimizer_impl": "foreach",
            "activation_checkpointing": checkpointing,
            "attention": "sdpa",
            "loss": "eager",
            "logits_dtype": "fp32",
            "logits_kept": False,
            "torch_version": "2.13.0",
            **training,
        },
        parallelism={
            "data": DEVICES,
            "sharding": f"zero{stage}",
            "shard_degree": DEVICES,
            "reduce_bucket_elements": plan.reduce_bucket_elements,
            "overlap_comm": False,
        },
    )
    return parse_case(fields).run


@pytest.mark.parametrize(("model", "stage", "accumulation", "checkpointing"), CELLS)
def test_both_models_of_deepspeed_agree(model, stage, accumulation, checkpointing):
    wanted = setup(
        model=model,
        sequence_length=LENGTH,
        precision="bf16",
        gradient_checkpointing=checkpointing,
        global_batch_size=DEVICES * SEQUENCES * accumulation,
        resources={"gpus": DEVICES, "zero_stage": stage, "micro_batch_size": SEQUENCES},
    )
    plan, exact = exactly(wanted)
    run = run_of(wanted.model, plan, stage, accumulation, checkpointing)
    assert predict_allocated(run).total / GIB == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("modules", [MODULES, EVERY_MODULE], ids=["q and v", "all"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_both_models_of_adapters_agree(modules, checkpointing):
    wanted = setup(
        model="llama-3.2-1b",
        method="lora",
        lora={"rank": 16, "target_modules": list(modules)},
        sequence_length=LENGTH,
        precision="bf16",
        gradient_checkpointing=checkpointing,
        global_batch_size=DEVICES * SEQUENCES,
        resources={"gpus": DEVICES, "zero_stage": 1, "micro_batch_size": SEQUENCES},
    )
    plan, exact = exactly(wanted)
    lora = {
        "rank": 16,
        "targets": list(modules.values()),
        "dropout": 0.0,
        "trainable_parameters": wanted.model.adapter_parameters,
    }
    run = run_of(
        wanted.model, plan, 1, 1, checkpointing, method="lora", lora=lora, adapter_dtype="bf16"
    )
    assert predict_allocated(run).total / GIB == pytest.approx(exact, rel=0.05)


def exactly(wanted):
    card = find_gpu("NVIDIA H200")
    plan = exact_plan(wanted, card)
    return plan, breakdown(wanted, plan, card).memory.allocated.expected / GIB
