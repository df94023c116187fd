"""Quotas over the whole life of a workload: limits hold at every moment, and everybody finishes."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulation import FREE, a_job, a_plan, a_setup, ends, nodes, simulate

from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.quotas import load_quotas

NAMES = [policy.name for policy in (*POLICIES, *PREEMPTIVE)]
ONE = a_setup(1)
ROWS = {ONE: tuple(a_plan(f"p{n}", "t4", n, 1.0 / n**0.9) for n in (1, 2, 4))}
MACHINES = nodes(t4=(2, 4))

jobs = st.lists(
    st.tuples(st.sampled_from("pqr"), st.integers(0, 100), st.floats(0, 500), st.integers(1, 2000)),
    min_size=1,
    max_size=8,
)
quotas = st.dictionaries(
    st.sampled_from("pqr"), st.tuples(st.integers(0, 4), st.integers(4, 8)), max_size=3
).map(
    lambda found: [
        Project(name=name, kinds={"t4": DeviceQuota(nominal=nominal, limit=limit)})
        for name, (nominal, limit) in found.items()
    ]
)


def workload(drawn):
    ordered = sorted(drawn, key=lambda one: one[2])
    return [
        replace(a_job(f"j{n}", at_s, steps, ONE), project=project, priority=priority)
        for n, (project, priority, at_s, steps) in enumerate(ordered)
    ]


@given(name=st.sampled_from(NAMES), drawn=jobs, projects=quotas)
@settings(max_examples=60)
def test_limits_hold_at_every_moment_and_every_job_ends(name, drawn, projects):
    limits = {project.name: project.kinds["t4"].limit for project in projects}

    def look(_queue, running, _snapshot, _now_ms):
        use = Counter()
        for job in running:
            use[job.project] += len(job.placement.devices)
        assert all(use[project] <= limit for project, limit in limits.items())

    outcome = simulate(name, workload(drawn), MACHINES, ROWS, FREE, projects=projects, look=look)
    assert len(ends(outcome)) == len(drawn)
    assert outcome.unfinished == []


@pytest.mark.parametrize("name", ["frenzy", "srtf-preemptive", "las"])
def test_an_owner_starts_at_once_though_a_guest_has_everything(name):
    owner = Project(name="owner", kinds={"t4": DeviceQuota(nominal=4)})
    guests = [replace(a_job(f"g{n}", 0, 10_000, ONE), project="guest") for n in range(8)]
    late = replace(a_job("own", 1000, 100, ONE), project="owner", priority=0)
    outcome = simulate(name, [*guests, late], MACHINES, ROWS, FREE, projects=[owner])
    (mine,) = [job for job in outcome.done if job.id == "own"]
    assert mine.wait_s == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vision: {devices: {limit: -1}}", "project vision: devices.limit: "),
        ("vision: {kinds: {T4: {limt: 1}}}", "did you mean 'limit'?"),
        ("Vision: {}", "project 'Vision': use a-z"),
        ("vision: 3", "project vision: "),
        ("- a", "quotas.yaml"),
        ("vision: {weight: 0}", "project vision: weight: "),
    ],
)
def test_wrong_quota_files_are_refused_with_the_place(tmp_path, text, said):
    file = tmp_path / "quotas.yaml"
    file.write_text(text)
    with pytest.raises(InvalidScenario) as error:
        load_quotas(file)
    assert said in error.value.message


def test_quotas_are_what_the_api_takes(tmp_path):
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "vision: {weight: 2, kinds: {T4: {nominal: 1}}, max_running_jobs: 3}\naudio: {}"
    )
    assert load_quotas(file) == (
        Project(
            name="vision", weight=2.0, kinds={"T4": DeviceQuota(nominal=1)}, max_running_jobs=3
        ),
        Project(name="audio"),
    )
    with pytest.raises(InvalidScenario, match="cannot read"):
        load_quotas(tmp_path / "absent.yaml")
