"""Clusters, specifications, knobs and generated workloads."""

import json
import statistics

import pytest

from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_simulator.cluster import load_cluster, parse_cluster
from frenzy_simulator.compare import Comparison
from frenzy_simulator.errors import InvalidCluster, InvalidScenario, InvalidTrace
from frenzy_simulator.generator import PROFILES, generate
from frenzy_simulator.presets import to_sim_jobs, training_of
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.specs import parse_specs
from frenzy_simulator.throughput import Marp
from frenzy_simulator.workload import Source

CLUSTER = {"nodes": [{"kind": "T4", "gpus": 4, "count": 2}, {"kind": "A100 SXM4 40GB", "gpus": 8}]}
SPEC = {"model": "gpt2-tiny", "data": "node:/d", "global_batch_size": 8, "max_steps": 50}


def test_a_cluster_has_the_catalogues_memory_unless_the_file_says_otherwise():
    groups = [*CLUSTER["nodes"], {"kind": "T4", "gpus": 1, "memory": "14GiB"}]
    kinds = {kind.kind: kind for kind in summarize_kinds(parse_cluster({"nodes": groups}))}
    assert kinds["T4"].node_counts == (4, 4, 1)
    assert kinds["T4"].memory_bytes == 14 * 2**30
    assert kinds["A100 SXM4 40GB"].memory_bytes > 39 * 2**30


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"nodes": []}, "cluster: nodes: must have at least 1 item (has 0)"),
        ({}, "cluster: nodes: is required"),
        (None, "cluster: the file"),
        ([1], "cluster: the file"),
        ({"nodes": [{"kind": "T4", "gpus": 0}]}, "cluster: nodes.0.gpus: "),
        ({"nodes": [{"kind": "T4", "gpus": 4, "count": -1}]}, "cluster: nodes.0.count: "),
        ({"nodes": [{"kind": "T4", "gpus": 4, "cuont": 1}]}, "cluster: nodes.0.cuont: "),
        ({"nodes": [{"kind": "Q9000", "gpus": 4}]}, "no GPU is called 'Q9000'"),
        ({"nodes": [{"kind": "T4", "gpus": 4, "memory": "0GB"}]}, "nodes.0.memory: '0GB'"),
        ({"nodes": [{"kind": "emulated-x", "gpus": 4}]}, "emulated-x needs a memory"),
        ({"nodes": [{"kind": "T4", "gpus": 64, "count": 10_000}]}, "at most 100000"),
    ],
)
def test_impossible_clusters_say_where(data, problem):
    with pytest.raises(InvalidCluster) as caught:
        parse_cluster(data)
    assert problem in caught.value.message


def test_a_misspelt_kind_gets_a_suggestion(tmp_path):
    with pytest.raises(InvalidCluster) as caught:
        parse_cluster({"nodes": [{"kind": "A100 SXM 40GB", "gpus": 8}]})
    assert "A100 SXM4 40GB" in caught.value.suggestions[0]
    with pytest.raises(InvalidCluster, match="cannot read"):
        load_cluster(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("nodes: [")
    with pytest.raises(InvalidCluster, match="not YAML"):
        load_cluster(broken)


def test_specifications_become_jobs_of_their_own_length():
    lines = [
        json.dumps({"id": "a", "submit_s": 10, "spec": {**SPEC, "resources": {"gpus": 2}}}),
        "",
        json.dumps({"id": "b", "submit_s": 12.5, "spec": SPEC}),
    ]
    one, two = parse_specs(lines)
    assert (one.submit_s, one.steps, one.gpus_requested) == (0.0, 50.0, 2)
    assert (two.submit_s, two.sequence) == (2.5, 2)
    assert one.setup.pins.device_count == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "t:1: not JSON"),
        ("[]", "t:1: a line is"),
        ("7", "t:1: a line is"),
        ('"text with id, submit_s, spec"', "t:1: a line is"),
        (json.dumps({"id": "a", "submit_s": 1}), "t:1: a line is"),
        (json.dumps({"id": "a", "submit_s": -1, "spec": SPEC}), "t:1: submit_s is -1"),
        (json.dumps({"id": "a", "submit_s": True, "spec": SPEC}), "t:1: submit_s is True"),
        (json.dumps({"id": 7, "submit_s": 1, "spec": SPEC}), "t:1: id must be a text"),
        (json.dumps({"id": "a", "submit_s": 1, "spec": 3}), "t:1: spec must be"),
        (json.dumps({"id": "a", "submit_s": 1, "spec": {**SPEC, "model": "x"}}), "t:1: model"),
        (json.dumps({"id": "a", "submit_s": 1, "spec": {**SPEC, "max_steps": None}}), "max_steps"),
    ],
)
def test_impossible_specifications_name_their_line(line, problem):
    with pytest.raises(InvalidTrace) as caught:
        parse_specs([line], name="t")
    assert problem in caught.value.message


def test_specifications_must_be_sorted_and_unique():
    def line(name, at):
        return json.dumps({"id": name, "submit_s": at, "spec": SPEC})

    with pytest.raises(InvalidTrace, match="t:2: job a is there twice"):
        parse_specs([line("a", 1), line("a", 2)], name="t")
    with pytest.raises(InvalidTrace, match="t:2: job b was submitted before"):
        parse_specs([line("a", 1), line("b", 0)], name="t")


def test_steps_are_such_that_the_reference_allocation_takes_the_traces_duration():
    kinds = summarize_kinds(parse_cluster(CLUSTER))
    model = Marp(kinds)
    trace = generate("helios", 60, largest=8, seed=5)
    for traced, job in zip(trace, to_sim_jobs(trace, model, "A100 SXM4 40GB", 5), strict=True):
        plans = model.plans(job.setup)
        usable = [
            plan
            for plan in plans
            if plan.kind == "A100 SXM4 40GB" and plan.device_count <= traced.gpus_requested
        ]
        if usable:
            step_s = min(plan.speed.step_s for plan in usable)
            assert job.steps * step_s == pytest.approx(max(traced.duration_s, step_s))


def test_classes_of_jobs_are_seeded():
    trace = generate("philly", 200, largest=8, seed=1)
    same = [training_of(job, 3) for job in trace]
    assert same == [training_of(job, 3) for job in trace]
    assert same != [training_of(job, 4) for job in trace]


@pytest.mark.parametrize("profile", PROFILES)
def test_generated_workloads_are_seeded_and_have_their_marginals(profile):
    jobs = generate(profile, 4000, per_hour=50.0, largest=16, seed=2)
    assert jobs == generate(profile, 4000, per_hour=50.0, largest=16, seed=2)
    assert jobs != generate(profile, 4000, per_hour=50.0, largest=16, seed=3)
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    assert jobs[-1].submit_s == pytest.approx(4000 / 50 * 3600, rel=0.1)
    found = PROFILES[profile]
    median = statistics.median(job.duration_s for job in jobs)
    assert median == pytest.approx(found.median_s, rel=0.15)
    singles = sum(job.gpus_requested == 1 for job in jobs) / len(jobs)
    assert singles == pytest.approx(found.shares[1], abs=0.03)
    assert max(job.gpus_requested for job in jobs) <= 16


@pytest.mark.parametrize(
    "make",
    [
        lambda: generate("gandiva", 10, largest=4),
        lambda: generate("philly", 0, largest=4),
        lambda: generate("philly", 10, per_hour=0.0, largest=4),
        lambda: generate("philly", 10, per_hour=float("nan"), largest=4),
        lambda: Scenario(restart_factor=-1.0),
        lambda: Scenario(prediction_sigma=float("inf")),
        lambda: Scenario(early_end_share=1.5),
        lambda: Scenario(tick_s=0.0),
        lambda: Comparison(jobs=[], nodes=(), policies=["gandiva"], scenario=Scenario()),
        lambda: Comparison(jobs=[], nodes=(), policies=["has", "has"], scenario=Scenario()),
        lambda: Comparison(jobs=[], nodes=(), policies=[], scenario=Scenario()),
        lambda: Source(jobs=0).read(summarize_kinds(parse_cluster(CLUSTER))),
        lambda: Source(reference_kind="H100").read(summarize_kinds(parse_cluster(CLUSTER))),
    ],
)
def test_impossible_knobs_are_refused(make):
    with pytest.raises(InvalidScenario):
        make()
