import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.planning import MIB, emulated, gpu, setup

from frenzy_marp.core.planner import MAX_PLANS, plan_job
from frenzy_shared.domain.model import Pins
from frenzy_shared.domain.plan import ActivationCheckpointing, Loss, Precision

SMALL, MIDDLE, LARGE = emulated("small", 96), emulated("middle", 256), emulated("large", 512, 1)
CLUSTER = (SMALL, MIDDLE, LARGE)


def test_a_small_job_gets_plans_on_every_kind():
    plans = plan_job(setup(model="gpt2-tiny"), CLUSTER)
    assert {plan.kind for plan in plans.plans} == {kind.kind for kind in CLUSTER}
    assert plans.refused == ()
    assert plans.message == ""
    times = [plan.speed.total_s for plan in plans.plans]
    assert times == sorted(times)
    assert plans.plans[0].why.startswith("fastest")


def test_one_device_runs_stage_1_and_several_shard_only_as_far_as_needed():
    plans = plan_job(setup(model="gpt2-tiny"), CLUSTER).plans
    assert {plan.parallelism.zero_stage for plan in plans} == {1}


def test_sharding_makes_a_model_fit_on_several_small_devices():
    demand = setup(model="llama-medium", sequence_length=64, global_batch_size=4)
    plans = plan_job(demand, [emulated("tiny", 300, 4)])
    assert plans.feasible
    assert {plan.device_count for plan in plans.plans} == {2, 4}


def test_recomputation_is_used_where_only_it_fits():
    def demand(**checkpointing):
        return setup(
            model="gpt2-mini",
            sequence_length=512,
            global_batch_size=4,
            resources={"gpus": 1, "micro_batch_size": 4},
            **checkpointing,
        )

    def needed(checkpointing):
        pinned = demand(gradient_checkpointing=checkpointing)
        return plan_job(pinned, [emulated("big", 8192)]).plans[0].memory.required.high

    assert needed("full") < needed("none")
    between = (needed("full") + needed("none")) // 2 // MIB
    [plan] = plan_job(demand(), [emulated("between", between)]).plans
    assert plan.parallelism.activation_checkpointing is ActivationCheckpointing.FULL


VOCABULARY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 8192,
    "max_position_embeddings": 512,
}


def test_the_loss_is_chunked_where_only_its_logits_bind():
    def demand(loss):
        pins = {"gpus": 1, "micro_batch_size": 4}
        return setup(model=VOCABULARY, global_batch_size=4, loss=loss, resources=pins)

    def needed(loss):
        return plan_job(demand(loss), [emulated("big", 8192)]).plans[0].memory.required.high

    assert needed("chunked") < needed("full") / 2
    assert needed("auto") == needed("full"), "the usual loss, where it fits"
    between = (needed("chunked") + needed("full")) // 2 // MIB
    [plan] = plan_job(demand("auto"), [emulated("between", between)]).plans
    assert plan.parallelism.loss is Loss.CHUNKED
    assert plan.id.endswith("-chunked")
    refused = plan_job(demand("full"), [emulated("between", between)]).refused[0]
    assert "without loss it would fit" in refused.reason


def test_an_assumed_architecture_is_never_given_a_chunked_loss():
    unknown = {**VOCABULARY, "model_type": "cohere"}
    demand = setup(model=unknown, global_batch_size=4, resources={"gpus": 1})
    assert demand.model.structure.assumed
    plans = plan_job(demand, [emulated("small", 512, 1)]).plans
    assert {plan.parallelism.loss for plan in plans} == {Loss.FULL}
    [plan] = plans
    assert "nobody has checked this architecture" in plan.why
    assert plan.memory.required.high > 1.39 * plan.memory.required.expected


def test_adapters_need_neither_gradients_nor_moments_of_frozen_weights():
    def memory(**method):
        pins = {"gpus": 2, "zero_stage": 2, "micro_batch_size": 1}
        demand = setup(model="llama-3.1-8b", sequence_length=512, resources=pins, **method)
        return plan_job(demand, [gpu("A100-SXM4-80GB", 900, 8)]).plans[0]

    full, adapted = memory(), memory(method="lora", lora={"rank": 16})
    parameters = 8_030_261_248
    assert full.memory.allocated.expected > 2 * parameters + 6 * parameters
    assert 2 * parameters < adapted.memory.allocated.expected < 3.5 * parameters
    assert adapted.speed.step_s < full.speed.step_s
    bucket = adapted.parallelism.reduce_bucket_elements
    assert bucket == 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336))


def test_a_pin_that_cannot_fit_is_named_with_numbers():
    pins = {"gpus": 1, "kinds": ["emulated-small"], "offload": "none"}
    plans = plan_job(setup(model="llama-small", resources=pins), CLUSTER)
    assert not plans.feasible
    refused = next(item for item in plans.refused if item.kind == "emulated-small")
    assert refused.pin == "resources.gpus"
    assert refused.shortfall_bytes > 0
    assert "the device has 96.0 MiB" in refused.reason
    assert "resources.gpus" in plans.message


def test_pins_that_only_together_are_to_blame_are_named_together():
    demand = setup(
        model="gpt2-mini",
        global_batch_size=16,
        resources={"gpus": 1, "kinds": ["emulated-small"], "micro_batch_size": 16},
    )
    refused = plan_job(demand, CLUSTER).refused[0]
    assert refused.pin == "resources.gpus, resources.micro_batch_size"


@pytest.mark.parametrize(
    ("resources", "pin", "text"),
    [
        ({"kinds": ["A100"]}, "resources.kinds", "no node has this kind; present: emulated-small"),
        ({"gpus": 3}, "resources.gpus", "the cluster has 2 of them"),
        ({"gpus": 2, "micro_batch_size": 3}, "resources.micro_batch_size", "does not divide the 4"),
        ({"tensor": 2}, "resources.tensor", "not planned in this release"),
        ({"pipeline": 4}, "resources.pipeline", "not in this release"),
        ({"gpu_memory": "1GiB.."}, "resources.gpu_memory", "at least 1.00 GiB is asked for"),
        ({"gpu_memory": "..64MiB"}, "resources.gpu_memory", "at most 64.0 MiB is asked for"),
    ],
)
def test_impossible_pins_are_refused_with_a_reason(resources, pin, text):
    plans = plan_job(setup(model="gpt2-tiny", resources=resources), CLUSTER)
    assert not plans.feasible
    assert any(item.pin == pin and text in item.reason for item in plans.refused), plans.refused
    assert pin in plans.message


def test_a_batch_that_cannot_be_split_says_so():
    plans = plan_job(setup(model="gpt2-tiny", global_batch_size=7, resources={"gpus": 2}), [SMALL])
    assert "global batch 7 cannot be split evenly over 2 devices" in plans.refused[0].reason


def test_precision_follows_the_device():
    old, new = gpu("Tesla T4", 14.5, 2, capability="7.5"), gpu("NVIDIA A30", 23, 2)
    by_kind = {p.kind: p.parallelism.precision for p in plan_job(setup(), [old, new]).plans}
    assert by_kind == {old.kind: Precision.FP16, new.kind: Precision.BF16}
    refused = plan_job(setup(precision="bf16"), [old]).refused
    assert refused[0].pin == "precision"
    assert not plan_job(setup(precision="fp16"), [SMALL]).feasible


def test_an_unknown_kind_is_planned_with_what_the_node_measured():
    plans = plan_job(setup(), [gpu("NVIDIA Fantasy 9000", 40)])
    assert plans.feasible
    assert all("NVIDIA Fantasy 9000 is not in the catalogue" in plan.why for plan in plans.plans)


def test_instances_of_a_partitioned_gpu_are_used_alone():
    kind = gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19.5, 2, 2)
    assert {plan.device_count for plan in plan_job(setup(), [kind]).plans} == {1}
    refused = plan_job(setup(resources={"gpus": 2}), [kind]).refused[0]
    assert refused.pin == "resources.gpus"
    assert "cannot train together" in refused.reason


def test_a_correction_moves_to_more_memory():
    demand = setup(model="gpt2-mini", resources={"max_gpus": 1})
    before = plan_job(demand, CLUSTER).plans
    after = plan_job(demand, CLUSTER, demanded=3.0).plans
    assert all(p.memory.allocated.expected * 1.049 < p.memory.required.high for p in after)
    smallest = {p.kind: p.parallelism.micro_batch_size for p in before}
    for plan in after:
        assert plan.parallelism.micro_batch_size <= smallest[plan.kind]
    assert "correction from earlier runs" in {t.name for t in after[0].memory.terms}


def test_an_empty_cluster_has_no_plans_and_says_so():
    plans = plan_job(setup(), [])
    assert not plans.feasible
    assert plans.message == "the cluster has no devices"


def test_many_kinds_keep_the_best_of_each_within_the_cap():
    kinds = [gpu(f"NVIDIA A30 {n}", 20 + n, 8, 8, 8, 8) for n in range(12)]
    plans = plan_job(setup(model="gpt2", global_batch_size=64), kinds).plans
    assert len(plans) <= MAX_PLANS
    assert {plan.kind for plan in plans} == {kind.kind for kind in kinds}


def test_absurd_sizes_end_in_a_refusal_at_once():
    huge = {
        "model_type": "llama",
        "hidden_size": 2**24,
        "intermediate_size": 2**24,
        "num_hidden_layers": 4096,
        "num_attention_heads": 2**20,
        "vocab_size": 2**24,
    }
    demand = setup(model=huge, sequence_length=2**20, global_batch_size=2**20)
    plans = plan_job(demand, [gpu("NVIDIA A30", 23, 8)])
    assert not plans.feasible
    assert plans.refused[0].shortfall_bytes > 10**15


pins_strategy = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.sampled_from([1, 2, 4]),
        "max_gpus": st.sampled_from([4, 8]),
        "zero_stage": st.integers(0, 3),
        "micro_batch_size": st.sampled_from([1, 2, 3]),
    },
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    resources=pins_strategy,
    batch=st.integers(1, 24),
    precision=st.sampled_from([None, "bf16", "fp32"]),
    checkpointing=st.sampled_from([None, "none", "full"]),
    mib=st.integers(8, 400),
)
def test_every_plan_fits_keeps_the_batch_and_honours_every_pin(
    resources, batch, precision, checkpointing, mib
):
    demand = setup(
        model="llama-tiny",
        sequence_length=64,
        global_batch_size=batch,
        resources=resources,
        **({"precision": precision} if precision else {}),
        **({"gradient_checkpointing": checkpointing} if checkpointing else {}),
    )
    kind = emulated("any", mib, 8)
    plans = plan_job(demand, [kind])
    assert plans.feasible or plans.refused
    pins: Pins = demand.pins
    for plan in plans.plans:
        how = plan.parallelism
        assert how.global_batch_size == batch
        assert how.world_size == plan.device_count <= min(8, pins.max_devices or 8)
        assert plan.memory.required.high <= kind.memory_bytes
        assert sum(t.size_bytes for t in plan.memory.terms) == plan.memory.allocated.expected
        assert pins.device_count in {None, plan.device_count}
        assert pins.zero_stage in {None, how.zero_stage}
        assert pins.micro_batch_size in {None, how.micro_batch_size}
        assert pins.precision in {None, how.precision}
        assert pins.activation_checkpointing in {None, how.activation_checkpointing}
        assert plan.deepspeed_config["train_batch_size"] == batch


CHECK = """
import json, sys
import deepspeed.comm
from deepspeed.runtime.config import DeepSpeedConfig
deepspeed.comm.get_rank = lambda: 0
class Ranks:
    def __init__(self, count): self.count = count
    def get_data_parallel_world_size(self): return self.count
    def get_data_parallel_group(self): return None
for count, config in json.load(sys.stdin):
    made = DeepSpeedConfig(config, mpu=Ranks(count))
    assert made.train_batch_size == config["train_batch_size"]
    assert made.zero_config.stage == config["zero_optimization"]["stage"]
    assert made.bfloat16_config.enabled == ("bf16" in config)
print("accepted")
"""


def test_deepspeed_accepts_every_configuration():
    configs = []
    for stage in range(4):
        for precision in ("bf16", "fp32"):
            demand = setup(precision=precision, resources={"zero_stage": stage, "gpus": 2})
            plan = plan_job(demand, [emulated("big", 4096)]).plans[0]
            configs.append((2, dict(plan.deepspeed_config)))
    clipped = plan_job(setup(gradient_clipping=None), [gpu("Tesla T4", 14.5)]).plans[0]
    assert "gradient_clipping" not in clipped.deepspeed_config
    assert clipped.environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert "accepted" in done.stdout, done.stderr[-2000:]


def test_memory_units_are_bytes():
    plan = plan_job(setup(model="gpt2-tiny"), [SMALL]).plans[0]
    assert MIB < plan.memory.allocated.expected < SMALL.memory_bytes


def test_a_script_pins_no_loss_by_itself_and_gets_the_usual_one():
    script = {"entrypoint": {"script": "train.py"}, "workdir": "node:/code"}
    kind = emulated("large", 4096)
    plans = plan_job(setup(**script), [kind]).plans
    assert {(plan.parallelism.loss, plan.pinned) for plan in plans} == {(Loss.FULL, ())}
    assert "pinned" not in plans[0].why
    [pinned] = {plan.pinned for plan in plan_job(setup(**script, loss="full"), [kind]).plans}
    assert pinned == ("loss",)


def test_the_time_of_a_run_of_unknown_length_is_said_to_be_of_so_many_steps():
    kind = emulated("large", 4096)
    unknown = plan_job(setup(), [kind]).plans[0]
    known = plan_job(setup(max_steps=1000), [kind]).plans[0]
    assert (unknown.speed.nominal_steps, known.speed.nominal_steps) == (1000, 0)
    assert unknown.speed.total_s == known.speed.total_s
    assert "s for 1000 steps on" in unknown.why
    assert "steps" not in known.why
