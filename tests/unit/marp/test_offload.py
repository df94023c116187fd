"""Plans that keep a part of a job in the nodes' RAM: when, with what, and when not."""

from dataclasses import replace

import pytest
from tests.support.planning import GIB, emulated, gpu, setup

from frenzy_marp.core.planner import plan_job
from frenzy_shared.domain.plan import Offload
from frenzy_shared.errors import InvalidSpec

CARD = gpu("NVIDIA A30", 23, 1)
BIG = {"model": "llama-3.1-8b", "sequence_length": 512, "global_batch_size": 4}


def with_ram(kind, gib):
    return replace(kind, host_memory_bytes=gib * GIB)


def only(plans):
    [plan] = plans.plans
    return plan


def test_nothing_is_offloaded_while_anything_fits_without():
    found = plan_job(setup(**BIG), [CARD, gpu("A100-SXM4-80GB", 79, 8)]).plans
    assert {plan.parallelism.offload for plan in found} == {Offload.NONE}


def test_the_optimizer_is_offloaded_when_nothing_else_fits():
    plan = only(plan_job(setup(model="gpt2-xl", global_batch_size=4), [CARD]))
    assert plan.parallelism.offload is Offload.OPTIMIZER
    assert plan.parallelism.zero_stage in {2, 3}
    zero = plan.deepspeed_config["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "offload_param" not in zero
    assert plan.deepspeed_config["zero_force_ds_cpu_optimizer"] is False
    assert "nothing fits without" in plan.why
    assert {"offloaded optimizer states", "the offloaded optimizer's update"} <= {
        term.name for term in plan.host.ram
    }


def test_weights_follow_where_the_optimizer_is_not_enough():
    plan = only(plan_job(setup(**BIG), [gpu("NVIDIA A30", 17.5, 1)]))
    assert plan.parallelism.offload is Offload.PARAMETERS
    assert plan.parallelism.zero_stage == 3
    assert plan.deepspeed_config["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert not any(term.name == "Adam moments" for term in plan.memory.terms)
    weights = next(term for term in plan.host.ram if term.name == "offloaded weights")
    assert weights.size_bytes == 2 * 8_030_261_248


def test_ram_that_is_short_is_said_in_numbers():
    plans = plan_job(setup(**BIG), [with_ram(CARD, 64)])
    assert not plans.feasible
    reasons = [item.reason for item in plans.refused]
    assert any("offloads to RAM, but a rank needs" in text for text in reasons)
    assert any("a node of NVIDIA A30 has 64.0 GiB" in text for text in reasons)
    pinned = setup(**BIG, resources={"offload": "optimizer"})
    [refused] = plan_job(pinned, [with_ram(gpu("A100-SXM4-80GB", 79, 1), 64)]).refused
    assert refused.pin == "resources.offload"


@pytest.mark.parametrize("offload", ["optimizer", "parameters"])
def test_a_pin_is_obeyed_where_all_would_fit(offload):
    demand = setup(model="gpt2-mini", resources={"offload": offload, "gpus": 2})
    plan = only(plan_job(demand, [emulated("large", 512)]))
    assert plan.parallelism.offload == offload
    assert plan.pinned == ("resources.gpus", "resources.offload")
    assert plan.deepspeed_config["zero_optimization"]["offload_optimizer"]["pin_memory"] is False
    assert plan.id.endswith(f"offload-{offload}")


def test_none_forbids_it_and_a_script_has_its_own_states():
    assert not plan_job(setup(**BIG, resources={"offload": "none"}), [CARD]).feasible
    script = setup(**BIG, entrypoint={"script": "train.py"}, workdir="node:/code")
    assert not plan_job(script, [CARD]).feasible


def test_more_in_ram_is_less_on_the_device_and_slower():
    def found(offload):
        pins = {"offload": offload, "gpus": 4, "zero_stage": 3, "micro_batch_size": 1}
        return only(plan_job(setup(**BIG, resources=pins), [gpu("A100-SXM4-80GB", 79, 8)]))

    plans = [found(offload) for offload in ("none", "optimizer", "parameters")]
    sizes = [plan.memory.allocated.expected for plan in plans]
    assert sizes == sorted(sizes, reverse=True)
    times = [plan.speed.step_s for plan in plans]
    assert times == sorted(times)
    rams = [plan.host.ram_bytes for plan in plans]
    assert rams == sorted(rams)


@pytest.mark.parametrize(("offload", "stage"), [("optimizer", 0), ("parameters", 2)])
def test_stages_that_cannot_offload_are_refused(offload, stage):
    with pytest.raises(InvalidSpec, match=f"offload: {offload} needs zero_stage"):
        setup(resources={"offload": offload, "zero_stage": stage})
