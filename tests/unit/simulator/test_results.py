"""Metrics, the bound, and the command from end to end."""

import json

import pytest
from tests.support.simulation import a_job, a_plan, a_setup, nodes, simulate
from typer.testing import CliRunner

from frenzy.cli.app import build
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_shared.errors import Misconfigured
from frenzy_simulator.bound import bound_avg_s
from frenzy_simulator.cluster import parse_cluster
from frenzy_simulator.compare import Comparison, as_json
from frenzy_simulator.generator import generate
from frenzy_simulator.metrics import quantile, summarize
from frenzy_simulator.outcome import Outcome
from frenzy_simulator.presets import to_sim_jobs
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import Marp, Table
from frenzy_simulator.workload import Source

ONE, TWO = a_setup(1), a_setup(2)
CLUSTER = {"nodes": [{"kind": "T4", "gpus": 4, "count": 2}, {"kind": "A100 SXM4 40GB", "gpus": 8}]}
FIELDS = {
    "policy", "jobs", "finished", "infeasible", "avg_jct_s", "p50_jct_s", "p99_jct_s",
    "makespan_s", "avg_wait_s", "gpu_hours", "utilization", "preemptions", "restart_gpu_hours",
    "oom", "node_failures", "unfairness", "decision_cpu_us", "cycles",
    "unsolved",
}  # fmt: skip


def test_quantiles_are_values_that_occur():
    assert quantile([], 0.5) == 0.0
    assert [quantile([1, 2, 3, 4], share) for share in (0.0, 0.25, 0.5, 0.51, 0.99, 1.0)] == [
        1, 1, 2, 3, 4, 4,
    ]  # fmt: skip


def test_nothing_done_is_all_zeros():
    summary = summarize(Outcome(policy="has", devices=4))
    assert (summary.avg_jct_s, summary.utilization, summary.decision_cpu_us.max) == (0, 0, 0)


def test_the_bound_of_one_job_alone_is_what_it_takes_alone():
    table = Table({ONE: (a_plan("p", "t4", 2, 1.0),)})
    bound_s = bound_avg_s([a_job("a", 7, 100, ONE)], table, {"t4": 2}, Scenario(start_s=10.0))
    assert bound_s == pytest.approx(110.0)


def test_the_bound_of_equal_jobs_on_one_device_is_reached_by_fifo():
    """Ends at 100, 200, 300; mean busy times 50, 150, 250, plus half of 100 each."""
    table = Table({ONE: (a_plan("p", "t4", 1, 1.0),)})
    jobs = [a_job(f"j{n}", 0, 100, ONE) for n in range(3)]
    assert bound_avg_s(jobs, table, {"t4": 1}, Scenario(start_s=0.0)) == pytest.approx(200.0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("profile", ["helios", "newtrace"])
def test_no_policy_beats_the_bound(profile, seed):
    machines = parse_cluster(CLUSTER)
    source = Source(profile=profile, jobs=40, per_hour=60.0, seed=seed)
    comparison = Comparison(
        jobs=source.read(summarize_kinds(machines)),
        nodes=machines,
        policies=[policy.name for policy in (*POLICIES, *PREEMPTIVE)],
        scenario=Scenario(seed=seed),
    )
    bound_s = comparison.bound_avg_jct_s()
    assert bound_s > 0
    for name in comparison.policies:
        summary = summarize(comparison.run_one(name))
        assert summary.finished == summary.jobs == 40
        assert summary.avg_jct_s >= bound_s
        assert 0 < summary.utilization <= 1


def test_elastic_and_preemptive_beats_run_to_completion_under_load():
    """The figure that the default policy exists for; benchmarks/scheduling measures it well."""
    machines = parse_cluster(CLUSTER)
    kinds = summarize_kinds(machines)
    model = Marp(kinds)
    trace = generate("newtrace", 80, per_hour=20.0, largest=16, seed=1)
    comparison = Comparison(
        jobs=to_sim_jobs(trace, model, "T4", 1),
        nodes=machines,
        policies=["has", "frenzy"],
        scenario=Scenario(),
    )
    has, frenzy = (summarize(comparison.run_one(name)) for name in comparison.policies)
    assert frenzy.avg_jct_s < 0.5 * has.avg_jct_s
    assert frenzy.preemptions > 0 == has.preemptions


def test_results_are_the_documented_json():
    outcome = simulate(
        "has", [a_job("a", 0, 10, ONE)], nodes(t4=(1, 1)), {ONE: (a_plan("p", "t4", 1, 1.0),)}
    )
    data = json.loads(json.dumps(as_json([summarize(outcome)], 3.0)))
    assert data["bound_avg_jct_s"] == 3.0
    assert set(data["policies"][0]) == FIELDS
    assert set(data["policies"][0]["decision_cpu_us"]) == {"mean", "p50", "p99", "max"}


def run(*arguments: str):
    return CliRunner().invoke(build({"simulate"}), ["simulate", *arguments])


def test_the_command_compares_policies_in_processes_of_their_own():
    result = run("--jobs", "12", "--policy", "has", "--policy", "manual", "-o", "json", "-q")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert [one["policy"] for one in data["policies"]] == ["has", "manual"]
    assert all(one["finished"] == 12 for one in data["policies"])


def test_the_command_reads_a_cluster_and_a_trace(tmp_path):
    cluster, trace = tmp_path / "c.yaml", tmp_path / "t.csv"
    cluster.write_text("nodes: [{kind: T4, gpus: 4, count: 2}]\n")
    trace.write_text(
        "job_id,submit_s,duration_s,gpus_requested,model_or_class,user_vc,status\n"
        "a,0,600,1,gpt2,,\nb,30,600,2,gpt2,,\n"
    )
    result = run("--cluster", str(cluster), "--trace", str(trace), "--policy", "frenzy")
    assert result.exit_code == 0, result.output
    assert "frenzy" in result.stdout
    assert "2/2" in result.stdout


def test_the_commands_errors_are_about_the_input(tmp_path):
    assert "no policy is called 'gandiva'" in run("--policy", "gandiva").exception.message
    assert "cannot read" in run("--trace", str(tmp_path / "t.csv")).exception.message
    assert "prediction_sigma is -1.0" in run("--prediction-error=-1").exception.message


def test_a_rival_without_its_solver_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    monkeypatch.delitem(sys.modules, "frenzy_simulator.rivals.sia", raising=False)
    comparison = Comparison(
        jobs=[], nodes=parse_cluster(CLUSTER), policies=["sia"], scenario=Scenario()
    )
    with pytest.raises(Misconfigured, match="policy sia needs ") as caught:
        comparison.run_one("sia")
    assert caught.value.suggestions == ("in a checkout of Frenzy: pip install '.[bench]'",)
