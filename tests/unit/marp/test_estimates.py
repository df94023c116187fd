"""What one exact configuration takes: pins, overrides, the cluster's own GPUs, what was learned."""

from dataclasses import replace

import pytest
from tests.support.learning import run
from tests.support.planning import GIB, emulated, gpu

from frenzy_marp.core.breakdown import exact_plan
from frenzy_marp.core.host import HostNeeds
from frenzy_marp.core.learning import Experience
from frenzy_marp.core.learning_runs import Framework, conditions, shape_of
from frenzy_marp.core.planner import plan_job
from frenzy_marp.estimates import estimate_view
from frenzy_shared.domain.cluster import Device, NodeRecord, NodeState, summarize_kinds
from frenzy_shared.errors import InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.estimate import EstimateRequest, Overrides, overridden
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

KINDS = (emulated("a", 256), gpu("NVIDIA A100-SXM4-80GB", 79.2, 8))


def ask(gpu_name=None, *, spec=None, experience=None, **overrides):
    document = {"model": "gpt2-mini", "data": "node:/text", "global_batch_size": 8, **(spec or {})}
    request = EstimateRequest(
        spec=parse_spec(document), gpu=gpu_name, overrides=Overrides(**overrides)
    )
    return estimate_view(request, KINDS, experience or Experience())


def test_without_a_gpu_the_smallest_that_hold_it_are_named():
    found = ask()
    assert (found.gpu, found.capacity_bytes, found.fits, found.speed) == (None,) * 4
    assert found.oom_probability is None
    assert len(found.smallest_gpus) == 3
    assert found.memory.mode == "analytical"
    assert max(moment.allocated for moment in found.moments) == found.memory.allocated.expected
    assert found.moments[0].moment == "initialisation"


def test_a_gpu_of_the_cluster_has_what_its_nodes_measured():
    found = ask("NVIDIA A100-SXM4-80GB")
    assert found.capacity_bytes == int(79.2 * GIB)
    assert (found.fits, found.smallest_gpus) == (True, ())
    assert 0 <= found.oom_probability < 1e-6
    assert found.speed.tokens_per_s > 0
    catalogue = ask("h100 sxm5")
    assert catalogue.gpu == "H100 SXM5 80GB"
    assert catalogue.capacity_bytes > 79 * GIB


def test_an_emulated_kind_is_found_by_its_name():
    found = ask("emulated-a", micro_batch_size=8)
    assert found.memory.reserved == found.memory.allocated
    assert not found.fits
    assert found.oom_probability > 0.99


def test_overrides_change_what_the_specification_pins_and_are_told():
    spec = {"resources": {"zero_stage": 2}, "precision": "fp32"}
    found = ask(
        spec=spec, gpus=2, micro_batch_size=2, gradient_accumulation_steps=4, precision="bf16"
    )
    plan = found.plan
    assert (plan.data, plan.micro_batch_size, plan.gradient_accumulation_steps) == (2, 2, 4)
    assert (plan.zero_stage, plan.precision) == (2, "bf16")
    assert set(found.pinned) == {
        "resources.gpus",
        "resources.zero_stage",
        "resources.micro_batch_size",
        "precision",
    }


def test_without_accumulation_the_global_batch_is_kept():
    spec = parse_spec({"model": "gpt2", "data": "node:/x", "global_batch_size": 24})
    assert overridden(spec, Overrides(gpus=3)).global_batch_size == 24
    assert overridden(spec, Overrides(gradient_accumulation_steps=2)).global_batch_size == 2
    assert overridden(spec, Overrides()) == spec


@pytest.mark.parametrize(
    ("gpu_name", "overrides", "text"),
    [
        ("gpu of dreams", {}, "no GPU is called"),
        ("a100", {}, "several GPUs match"),
        (None, {"gpus": 3}, "cannot be split evenly over 3"),
        (None, {"micro_batch_size": 3}, "micro-batch 3 does not divide"),
        (None, {"tensor": 2}, "tensor parallelism"),
        (None, {"sequence_length": 4096}, "learned positions"),
        ("Tesla T4", {"precision": "bf16"}, "does not compute in bf16"),
    ],
)
def test_what_cannot_be_estimated_is_said(gpu_name, overrides, text):
    with pytest.raises(InvalidSpec, match=text):
        ask(gpu_name, **overrides)


def test_an_impossible_model_is_said():
    with pytest.raises(InvalidModelConfig, match="did you mean"):
        ask(spec={"model": "gpt3"})


def test_what_runs_taught_is_in_it():
    before = ask("emulated-a", zero_stage=1)
    spec = parse_spec({"model": "gpt2-mini", "data": "node:/text", "global_batch_size": 8})
    setup = training_setup(spec)
    known = conditions(
        setup,
        before.plan,
        framework=Framework.TRAINER,
        kind="emulated-a",
        emulated=True,
        shape=shape_of(setup),
    )
    runs = (run(n, ratio=1.2, slowness=2.0, conditions=known) for n in range(20))
    after = ask("emulated-a", zero_stage=1, experience=Experience(runs))
    assert (after.memory.mode, after.memory.runs, after.speed.runs) == ("learned", 20, 20)
    assert after.memory.allocated.expected > 1.15 * before.memory.allocated.expected
    assert after.speed.tokens_per_s < before.speed.tokens_per_s


def test_host_memory_and_disk_add_up_and_follow_the_plan():
    alone, spread = ask("NVIDIA A100-SXM4-80GB"), ask("NVIDIA A100-SXM4-80GB", gpus=8)
    for found in (alone, spread):
        assert found.host.ram_bytes == sum(term.size_bytes for term in found.host.ram)
        assert found.host.disk_bytes == sum(term.size_bytes for term in found.host.disk)
    assert alone.host.disk_bytes == spread.host.disk_bytes == found.parameters * (2 + 12 + 2)
    assert alone.host.ram_bytes - spread.host.ram_bytes == 12 * found.parameters * 7 // 8


def test_what_is_offloaded_counts_in_the_hosts_memory():
    here, there = (
        ask(
            "NVIDIA A100-SXM4-80GB",
            spec={"resources": {"gpus": 2, "zero_stage": 2, "offload": offload}},
        )
        for offload in ("none", "optimizer")
    )
    assert there.memory.allocated.expected < here.memory.allocated.expected
    assert there.host.ram_bytes >= here.host.ram_bytes + 12 * here.parameters // 2
    assert there.host.ram_bytes == sum(term.size_bytes for term in there.host.ram)


def test_an_emulated_devices_tensors_are_in_the_hosts_memory():
    setup = training_setup(
        parse_spec({"model": "gpt2-mini", "data": "node:/text", "global_batch_size": 8})
    )
    plan = exact_plan(setup, None)
    real, on_host = (
        HostNeeds.of(setup, plan.precision).estimate(1, emulated=emulated_, allocated=10**9)
        for emulated_ in (False, True)
    )
    assert {term.name for term in on_host.ram} - {term.name for term in real.ram} == {
        "tensors of the emulated device"
    }


@pytest.mark.parametrize(("there", "short"), [(0, False), (64 * GIB, False), (12 * GIB, True)])
def test_a_plan_says_when_ranks_outgrow_a_nodes_memory(there, short):
    setup = training_setup(
        parse_spec(
            {
                "model": "gpt2",
                "data": "node:/text",
                "global_batch_size": 16,
                "resources": {"gpus": 16},
            }
        )
    )
    kind = replace(gpu("NVIDIA A30", 24, 8, 8), host_memory_bytes=there)
    (plan,) = plan_job(setup, [kind]).plans
    assert ("8 ranks on one node need" in plan.why) is short
    assert ("a node of NVIDIA A30 has 12.0 GiB" in plan.why) is short


def test_the_smallest_node_of_a_kind_counts():
    device = Device(id="gpu0", kind="a", memory_bytes=1, emulated=True)
    nodes = [
        NodeRecord(
            id=f"node-{size}",
            state=NodeState.UP,
            version=1,
            epoch=1,
            boot_id="b",
            address="x",
            devices=(device,),
            host_memory_bytes=size,
        )
        for size in (64, 32)
    ]
    assert summarize_kinds(nodes)[0].host_memory_bytes == 32
    silent = replace(nodes[0], id="node-0", host_memory_bytes=0)
    assert summarize_kinds([silent, *nodes])[0].host_memory_bytes == 0
