"""Step times: what adds up, what hides, and what each kind of link costs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.planning import emulated, gpu, setup

from frenzy_marp.core.learning_errors import Correction
from frenzy_marp.core.planner import plan_job
from frenzy_marp.core.speed import estimate_speed, pace, training_flops
from frenzy_marp.core.speed_rates import PRIORS, rates, ring_bytes_s
from frenzy_shared.catalog.gpus import find_gpu
from frenzy_shared.domain.plan import Precision

GB = 1e9
A100 = find_gpu("A100 SXM4 80GB")
NODES = gpu("A100 SXM4 80GB", 79, 8, 8)


def paced(demand, *, kind=NODES, card=A100, precision=Precision.BF16, **options):
    return pace(demand, kind, card, precision, 50_000_000, **options)


def test_published_peaks_and_their_shares():
    model = setup(model="llama-2-7b").model
    bf16, fp32, tf32 = (
        rates(model, precision, NODES, A100, tf32=tf32).flops / 1e12
        for precision, tf32 in [
            (Precision.BF16, False),
            (Precision.FP32, False),
            (Precision.FP32, True),
        ]
    )
    assert fp32 == pytest.approx(19.5 * PRIORS.vector_share)
    assert bf16 == pytest.approx(2 * tf32) == pytest.approx(312 * 0.62 * 4096 / 4296)
    hopper = find_gpu("H100 SXM5 80GB")
    reached = rates(model, Precision.BF16, replace(NODES, kind=hopper.name), hopper).flops
    assert reached / hopper.tensor_flops == pytest.approx(0.72 * bf16 * 1e12 / A100.tensor_flops)


def test_a_7b_model_trains_as_fast_as_published_runs_within_a_third():
    """llm-foundry: MFU 0.64 on 8 A100 80GB (6.7B, 2048 tokens), with fused attention and norms."""
    demand = setup(model="llama-2-7b", sequence_length=2048, global_batch_size=64)
    best = plan_job(demand, [gpu("A100 SXM4 80GB", 79, 8)]).plans[0]
    assert 0.4 < best.speed.model_flops_utilization < 0.64


def test_launches_hide_behind_large_kernels_and_not_behind_small_ones():
    large = paced(setup(model="llama-2-7b", global_batch_size=8))
    assert large.on(1).parts_s(1, 1, recomputes=False)[1] == 0
    small = paced(setup(model="gpt2", sequence_length=128, global_batch_size=8))
    compute, launch, *_ = small.on(1).parts_s(1, 8, recomputes=False)
    assert compute + launch == pytest.approx(8 * small.launch_s[0])
    processor = paced(setup(), kind=emulated("a", 200), card=find_gpu("emulated-a"))
    assert processor.on(1).parts_s(1, 2, recomputes=False)[1] == 2 * processor.launch_s[0]


@given(
    model=st.sampled_from(["gpt2-tiny", "gpt2", "llama-2-7b"]),
    devices=st.sampled_from([1, 2, 4, 16]),
    stage=st.integers(0, 3),
    recomputes=st.booleans(),
)
def test_more_micro_steps_never_take_less(model, devices, stage, recomputes):
    gang = paced(setup(model=model, global_batch_size=64)).on(devices)
    times = [gang.total_s(stage, steps, recomputes=recomputes) for steps in (1, 2, 4, 64)]
    assert times == sorted(times)


def test_eager_attention_pays_for_its_scores():
    fused, eager = (
        paced(setup(model="gpt2", sequence_length=1024, attention=attention)).compute_s[0]
        for attention in ("sdpa", "eager")
    )
    moved = 8 * 1024 * PRIORS.score_passes * 12 * 1024 * 2 * 12
    added = moved / (A100.bandwidth * PRIORS.bandwidth_share)
    demands = [setup(model="gpt2", attention=attention) for attention in ("sdpa", "eager")]
    flops = training_flops(demands[1]) - training_flops(demands[0])
    reached = rates(demands[0].model, Precision.BF16, NODES, A100).flops
    assert eager - fused == pytest.approx(added + flops / reached)


def test_a_bridge_joins_two_and_no_more():
    titan, plain = find_gpu("TITAN RTX"), find_gpu("RTX 4090")
    assert ring_bytes_s(titan, 2, beyond=False) == titan.link * PRIORS.link_share
    through_host = titan.host_link * PRIORS.host_share
    assert ring_bytes_s(titan, 4, beyond=False) == through_host / 2
    assert ring_bytes_s(plain, 2, beyond=False) == plain.host_link * PRIORS.host_share
    assert ring_bytes_s(A100, 8, beyond=False) == A100.link * PRIORS.link_share
    assert ring_bytes_s(A100, 8, beyond=True) == 12.5 * GB * PRIORS.link_share


def test_tensor_parallelism_shares_the_work_and_pays_for_sums():
    demand = setup(model="llama-2-7b", sequence_length=2048)
    whole, half = paced(demand), paced(demand, tensor=2)
    assert 0.5 * whole.compute_s[0] < half.compute_s[0] < 0.6 * whole.compute_s[0]
    assert half.optimizer_s == whole.optimizer_s / 2
    assert whole.tensor_s == (0, 0)
    size = 8 * 2048 * 4096 * 2 * 32
    assert half.tensor_s[0] == pytest.approx(4 * size / (A100.link * PRIORS.link_share))
    assert half.tensor_s[1] == 1.5 * half.tensor_s[0]
    assert half.on(1).parts_s(1, 1, recomputes=False)[3] == half.tensor_s[0]


def test_what_was_learned_stretches_every_part():
    demand = setup(resources={"gpus": 1})
    kind = emulated("a", 400)
    plan = plan_job(demand, [kind]).plans[0]
    ready = paced(demand, kind=kind, card=find_gpu(kind.kind))
    slow = estimate_speed(
        demand,
        plan.parallelism,
        kind,
        find_gpu(kind.kind),
        ready,
        correction=Correction(factor=2.0, runs=3),
    )
    assert slow.step_s == pytest.approx(2 * plan.speed.step_s, rel=1e-6)
    assert slow.total_s == pytest.approx(2 * (plan.speed.total_s - 15) + 15, rel=1e-6)
    assert (slow.correction, slow.runs) == (2.0, 3)
