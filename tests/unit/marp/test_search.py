"""The search against trying everything."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.learning import run
from tests.support.planning import MIB, emulated, gpu, setup

from frenzy_marp.core.candidates import divisors, gpu_model, precision_of
from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.learning import Experience, Lessons
from frenzy_marp.core.learning_runs import Framework, conditions, shape_of
from frenzy_marp.core.memory.analytical import floor_of, predict_peak, workload_of
from frenzy_marp.core.memory.estimate import DeviceTraits, required_bytes
from frenzy_marp.core.memory.predictor import Predictor, Sharding
from frenzy_marp.core.memory.shape import element_bytes
from frenzy_marp.core.planner import NO_EXPERIENCE, plan_job
from frenzy_marp.core.speed import estimate_speed, pace
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Loss,
    Offload,
    ParallelismPlan,
    Precision,
)


def stages_of(devices, pinned, offload):
    """Return the ZeRO stages that come into question."""
    usual = (1,) if devices == 1 else (1, 2, 3)
    able = {Offload.NONE: range(4), Offload.OPTIMIZER: (1, 2, 3), Offload.PARAMETERS: (3,)}[offload]
    if pinned is not None:
        return (pinned,) if pinned in able else ()
    return {Offload.NONE: usual, Offload.OPTIMIZER: (2, 3), Offload.PARAMETERS: (3,)}[offload]


def every_plan(demand, kind, precision, offload):
    """Yield every plan that the pins and the global batch allow, one by one."""
    batch, pins = demand.global_batch_size, demand.pins
    for devices in divisors(batch):
        if devices > min(kind.total, pins.max_devices or kind.total):
            continue
        stages = stages_of(devices, pins.zero_stage, offload)
        chunks = demand.model.chunk_length(demand.sequence_length) < demand.sequence_length
        for stage, checkpointing, micro_batch, loss in product(
            stages,
            ActivationCheckpointing,
            divisors(batch // devices),
            Loss if chunks else [Loss.FULL],
        ):
            if pins.micro_batch_size not in (None, micro_batch):
                continue
            if pins.activation_checkpointing not in (None, checkpointing):
                continue
            yield ParallelismPlan(
                zero_stage=stage,
                data=devices,
                tensor=1,
                pipeline=1,
                micro_batch_size=micro_batch,
                gradient_accumulation_steps=batch // devices // micro_batch,
                precision=precision,
                activation_checkpointing=checkpointing,
                reduce_bucket_elements=bucket_elements(demand.model),
                loss=loss,
                offload=offload,
            )


def peak_of(demand, kind, plan):
    return predict_peak(
        demand.model,
        demand.attention,
        demand.sequence_length,
        plan,
        cuda=not kind.emulated,
        single_step=demand.optimizer_steps == 1,
    ).allocated


def brute_force(demand, kind, demanded=0.0, experience=NO_EXPERIENCE):
    """Return the seconds of the fastest fitting plan by devices, where more devices help.

    With more and more offloaded, as long as nothing fits.
    """
    for offload in Offload:
        kept = fitting(demand, kind, demanded, experience, offload)
        if kept:
            return kept
    return {}


def fitting(demand, kind, demanded, experience, offload):
    card = gpu_model(kind)
    precision = precision_of(card, demand.pins)
    bucket = bucket_elements(demand.model)
    speed = pace(demand, kind, card, precision, bucket, offload=offload)
    lessons = Lessons(experience, demand, Framework.TRAINER)
    best = {}
    for plan in every_plan(demand, kind, precision, offload):
        allocated = peak_of(demand, kind, plan)
        floor = floor_of(
            demand.model,
            demand.attention,
            demand.sequence_length,
            element=element_bytes(precision),
            stage=plan.zero_stage,
            ranks=plan.data,
            single_step=demand.optimizer_steps == 1,
            loss=plan.loss,
            offload=offload,
        )
        assert floor.at(plan.micro_batch_size) <= allocated
        traits = DeviceTraits(
            emulated=kind.emulated,
            compute_capability=kind.compute_capability,
            ranks=plan.data,
        )
        memory, slowness = lessons.about(plan, kind.kind, emulated=kind.emulated)
        memory = memory.at_least(demanded)
        if required_bytes(allocated, traits, correction=memory) <= kind.memory_bytes:
            total_s = estimate_speed(demand, plan, kind, card, speed, correction=slowness).total_s
            best[plan.data] = min(total_s, best.get(plan.data, total_s))
    kept = {}
    for devices in sorted(best):
        if best[devices] < min(kept.values(), default=float("inf")):
            kept[devices] = best[devices]
    return kept


def found(demand, kind, demanded=0.0, experience=NO_EXPERIENCE):
    plans = plan_job(demand, [kind], demanded=demanded, experience=experience).plans
    lessons = Lessons(experience, demand, Framework.TRAINER)
    for plan in plans:
        how = plan.parallelism
        memory, _ = lessons.about(how, kind.kind, emulated=kind.emulated)
        factor = max(memory.factor, demanded)
        assert plan.memory.allocated.expected == round(peak_of(demand, kind, how) * factor)
    return {plan.device_count: plan.speed.total_s for plan in plans}


pins = st.fixed_dictionaries(
    {},
    optional={
        "max_gpus": st.sampled_from([3, 8]),
        "zero_stage": st.integers(0, 3),
        "micro_batch_size": st.sampled_from([1, 2]),
    },
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    model=st.sampled_from(["llama-tiny", "gpt2-tiny", "gpt2-mini"]),
    resources=pins,
    batch=st.integers(1, 24),
    length=st.sampled_from([16, 256]),
    attention=st.sampled_from(["sdpa", "eager"]),
    mib=st.integers(4, 200),
    correction=st.sampled_from([0.0, 1.6]),
    steps=st.sampled_from([None, 1, 50]),
)
def test_on_small_devices_nothing_better_is_missed(
    model, resources, batch, length, attention, mib, correction, steps
):
    demand = setup(
        model=model,
        sequence_length=length,
        global_batch_size=batch,
        attention=attention,
        resources=resources,
        max_steps=steps,
    )
    kind = emulated("any", mib, 8)
    assert found(demand, kind, correction) == brute_force(demand, kind, correction)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    model=st.sampled_from(["gpt2", "gpt2-xl", "llama-3.2-1b", "llama-2-7b"]),
    batch=st.sampled_from([6, 16, 24]),
    length=st.sampled_from([128, 1024]),
    gib=st.integers(4, 80),
    capability=st.sampled_from(["7.5", "8.0", "10.0"]),
)
def test_on_gpus_nothing_better_is_missed(model, batch, length, gib, capability):
    demand = setup(model=model, sequence_length=length, global_batch_size=batch)
    kind = gpu(
        "Tesla T4" if capability == "7.5" else "NVIDIA A30", gib, 4, 4, capability=capability
    )
    assert found(demand, kind) == brute_force(demand, kind)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    model=st.sampled_from(["llama-tiny", "gpt2-tiny", "gpt2-xl", "llama-2-7b"]),
    method=st.sampled_from(["full", "lora"]),
    sharding=st.builds(
        Sharding,
        stage=st.integers(0, 3),
        ranks=st.sampled_from([1, 2, 8]),
        accumulates=st.booleans(),
        cuda=st.booleans(),
        single_step=st.booleans(),
    ),
    checkpointing=st.sampled_from(list(ActivationCheckpointing)),
    loss=st.sampled_from(list(Loss)),
    element=st.sampled_from([2, 4]),
)
def test_what_leaves_a_micro_batch_out_is_never_more_than_its_peak(
    model, method, sharding, checkpointing, loss, element
):
    demand = setup(model=model, sequence_length=128, method=method)
    workload = workload_of(
        demand.model,
        demand.attention,
        demand.sequence_length,
        element=element,
        bucket=bucket_elements(demand.model),
        micro_batches=(1, 2, 3, 8, 40),
    )
    predictor = Predictor(workload)
    least = predictor.least(sharding, checkpointing, loss).tolist()
    peaks = predictor.allocated(sharding, checkpointing, loss)
    assert least == sorted(least)
    assert all(low <= peak for low, peak in zip(least, peaks, strict=True))


def test_more_micro_steps_never_take_less_time():
    demand = setup(model="gpt2", global_batch_size=64)
    kind = gpu("NVIDIA A30", 24, 4, 4)
    card = gpu_model(kind)
    speed = pace(demand, kind, card, precision_of(card, demand.pins), 10**6)
    for devices, stage, recomputes in product((1, 2, 8), range(4), (False, True)):
        times = [
            speed.on(devices).total_s(stage, steps, recomputes=recomputes) for steps in range(1, 9)
        ]
        assert times == sorted(times)


def test_kinds_that_share_a_search_get_what_they_would_get_alone():
    demand = setup(model="gpt2-mini", global_batch_size=12)
    kinds = [emulated(f"k{mib}", mib, 4) for mib in (40, 70, 150, 600)]
    together = plan_job(demand, kinds).plans
    for kind in kinds:
        alone = plan_job(demand, [kind]).plans
        assert {p.id for p in alone} == {p.id for p in together if p.kind == kind.kind}
        assert all(p.memory.required.high <= kind.memory_bytes // MIB * MIB for p in alone)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    batch=st.sampled_from([4, 6, 12]),
    mib=st.integers(8, 120),
    ratios=st.lists(st.sampled_from([0.6, 0.9, 1.5]), min_size=8, max_size=8),
    slowness=st.lists(st.sampled_from([0.4, 1.0, 3.0]), min_size=8, max_size=8),
)
def test_with_experience_nothing_better_is_missed(batch, mib, ratios, slowness):
    demand = setup(model="gpt2-tiny", sequence_length=256, global_batch_size=batch)
    kind = emulated("any", mib, 6)
    plans = every_plan(demand, kind, Precision.BF16, Offload.NONE)
    known = {
        conditions(
            demand,
            plan,
            framework=Framework.TRAINER,
            kind=kind.kind,
            emulated=True,
            shape=shape_of(demand),
        )
        for plan in plans
    }
    in_order = sorted(known, key=lambda each: each.group)
    runs = [
        run(number, ratio=ratio, slowness=slow, conditions=each)
        for number, (each, ratio, slow) in enumerate(zip(in_order, ratios, slowness, strict=False))
    ]
    experience = Experience(runs * 4)
    assert found(demand, kind, 0.0, experience) == brute_force(demand, kind, 0.0, experience)
