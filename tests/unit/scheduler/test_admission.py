"""Quotas while devices are handed out: limits, own shares, borrowing, giving back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scheduling import machines
from tests.support.simulation import a_plan, running, waiting

from frenzy_scheduler.core.admission import Holding, Ledger, Round
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place, Preempt, Resize
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE, policy_named
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_shared.domain.job import PendingReason
from frenzy_shared.domain.project import DeviceQuota, Project

HOUR_MS = 3_600_000
ALL = [*POLICIES, *PREEMPTIVE]
by_name = pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
stopping = pytest.mark.parametrize("policy", PREEMPTIVE, ids=lambda policy: policy.name)
ONE, TWO, FOUR = (a_plan(f"p{n}", "rtx", n, 1.0 / n**0.9) for n in (1, 2, 4))


def project(name, *, nominal=None, limit=None, kind="rtx", **fields):
    return Project(name=name, kinds={kind: DeviceQuota(nominal=nominal, limit=limit)}, **fields)


def decide(policy, queue, devices, ledger, held=(), now_ms=HOUR_MS):
    """Run a cycle on one node of ``devices`` (all, idle) and return what was decided."""
    return cycle(queue, machines({"a": {"rtx": devices}}), now_ms, policy, held, ledger=ledger)


def placed(decisions):
    return {one.job for one in decisions if isinstance(one, Place)}


def why(decisions, job):
    hold = next(one for one in decisions if isinstance(one, Hold) and one.job.id == job)
    return explain(hold, HOUR_MS)


@by_name
def test_a_limit_is_not_exceeded_and_the_rest_goes_to_others(policy):
    held = [running("r", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], project="p", restart_s=1e9)]
    ledger = Ledger([project("p", limit=3)], [Holding("p", "rtx", 2)])
    queue = [
        waiting("p1", 2, ONE, project="p"),
        waiting("p2", 3, ONE, project="p", steps=101),
        waiting("q1", 4, TWO, project="q", steps=102),
    ]
    decisions = decide(policy, queue, (6, 4), ledger, held)
    assert placed(decisions) == {"p1", "q1"}
    reason = why(decisions, "p2")
    assert reason.reason == PendingReason.QUOTA_EXCEEDED
    assert reason.message == "project p uses 3 of at most 3 x rtx; plan p1 needs 1 more"


@by_name
def test_a_job_takes_the_plan_that_the_limit_allows(policy):
    ledger = Ledger([Project(name="p", devices=DeviceQuota(limit=2))])
    (place,) = decide(policy, [waiting("j", 1, FOUR, TWO, ONE, project="p")], (8, 8), ledger)
    assert len(place.placement.devices) == 2


@by_name
def test_running_jobs_of_a_project_are_limited_too(policy):
    ledger = Ledger([Project(name="p", max_running_jobs=1)])
    queue = [waiting("j1", 1, ONE, project="p"), waiting("j2", 2, ONE, project="p", steps=101)]
    decisions = decide(policy, queue, (4, 4), ledger)
    assert placed(decisions) == {"j1"}
    assert why(decisions, "j2").message == "project p runs 1 jobs; its quota is 1"


@by_name
def test_a_limit_below_what_runs_stops_nothing_and_starts_nothing(policy):
    held = [running("r", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], project="p", steps=1e6)]
    ledger = Ledger([project("p", limit=1)], [Holding("p", "rtx", 2)])
    decisions = decide(policy, [waiting("j", 2, ONE, project="p", steps=1)], (4, 2), ledger, held)
    assert [type(one) for one in decisions] == [Hold]


@by_name
def test_idle_devices_are_borrowed_while_no_owner_waits(policy):
    ledger = Ledger([project("owner", nominal=4)])
    queue = [waiting("j", 1, FOUR, project="guest")]
    assert placed(decide(policy, queue, (4, 4), ledger)) == {"j"}


@by_name
def test_owners_come_before_those_who_would_borrow(policy):
    ledger = Ledger([project("owner", nominal=4)])
    queue = [
        waiting("guest", 1, FOUR, project="guest", steps=1, priority=100),
        waiting("own", 2, FOUR, project="owner", steps=1e5, arrived_ms=HOUR_MS),
    ]
    assert placed(decide(policy, queue, (4, 4), ledger)) == {"own"}


@pytest.mark.parametrize("name", ["has", "srtf", "backfill"])
def test_without_stops_new_borrowing_ends_while_an_owner_waits(name):
    """The owner needs four and two are idle: nobody else gets those."""
    ledger = Ledger([project("owner", nominal=4)], [Holding("guest", "rtx", 2)])
    held = [running("r", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], project="guest", steps=50)]
    queue = [
        waiting("own", 2, FOUR, project="owner", steps=1e5),
        waiting("guest", 3, ONE, project="guest", steps=1),
    ]
    decisions = decide(policy_named(name), queue, (4, 2), ledger, held)
    assert placed(decisions) == set()
    assert why(decisions, "guest").message == (
        "2 x rtx are idle but kept for their owners: project owner (4)"
    )


@stopping
def test_owners_get_back_what_was_borrowed_and_no_more(policy):
    devices = [f"a/rtx-{n}" for n in range(4)]
    held = [
        running(f"g{n}", n, ONE, devices=[devices[n]], project="guest", steps=10 + n, priority=100)
        for n in range(4)
    ]
    ledger = Ledger([project("owner", nominal=2)], [Holding("guest", "rtx", 1) for _ in devices])
    queue = [
        waiting(f"own{n}", 10 + n, ONE, project="owner", steps=1e6, priority=0) for n in range(4)
    ]
    decisions = decide(policy, queue, (4, 0), ledger, held)
    assert len(placed(decisions)) == 2
    assert sum(isinstance(one, Preempt) for one in decisions) == 2


@stopping
def test_a_project_within_its_own_share_keeps_it(policy):
    held = [
        running("mine", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], project="owner", steps=1e6),
    ]
    ledger = Ledger([project("owner", nominal=2)], [Holding("owner", "rtx", 2)])
    queue = [waiting("guest", 2, TWO, project="guest", steps=1, priority=100)]
    assert [type(one) for one in decide(policy, queue, (2, 0), ledger, held)] == [Hold]


def test_a_share_over_all_kinds_counts_every_kind():
    ledger = Ledger(
        [Project(name="p", devices=DeviceQuota(nominal=3, limit=4))], [Holding("p", "t4", 2)]
    )
    assert ledger.permits("p", ONE, Round.OWN, free=9)
    assert not ledger.permits("p", TWO, Round.OWN, free=9)
    assert ledger.permits("p", TWO, Round.ANY, free=9)
    assert not ledger.permits("p", FOUR, Round.ANY, free=9)


def test_a_change_of_plan_is_charged_by_the_difference():
    ledger = Ledger([project("p", limit=4)], [Holding("p", "rtx", 2)])
    assert ledger.permits("p", FOUR, Round.ANY, free=2, held=TWO)
    ledger.charge("p", FOUR, TWO)
    assert ledger.use("p", "rtx") == 4
    assert "uses 4 of at most 4" in ledger.exceeded("p", [ONE, TWO])


names = st.sampled_from("pqr")
quotas = st.tuples(st.none() | st.integers(0, 6), st.none() | st.integers(0, 8)).map(
    lambda pair: DeviceQuota(nominal=pair[0] and min(pair[0], pair[1] or 99), limit=pair[1])
)
projects = st.dictionaries(names, st.tuples(quotas, quotas), max_size=3).map(
    lambda found: [
        Project(name=name, kinds={"rtx": rtx}, devices=total)
        for name, (rtx, total) in found.items()
    ]
)
waiters = st.lists(st.tuples(names, st.integers(0, 100), st.integers(1, 4)), max_size=8)
holders = st.lists(st.tuples(names, st.integers(0, 100), st.booleans()), max_size=4)


def share(record):
    """Return what is a project's own; 0 without a share."""
    given_shares = [quota.nominal for quota in (record.kinds["rtx"], record.devices)]
    return min((one for one in given_shares if one is not None), default=0)


def limit(record):
    limits = [quota.limit for quota in (record.kinds["rtx"], record.devices)]
    return min((one for one in limits if one is not None), default=99)


def run(found, queue, holds, policy):
    """Return the decisions, what each project holds before and after, and the ten devices' rest."""
    held = [
        running(
            f"r{n}",
            n,
            TWO,
            ONE,
            FOUR,
            devices=[f"a/rtx-{2 * n}", f"a/rtx-{2 * n + 1}"],
            project=name,
            priority=priority,
            preemptible=preemptible,
        )
        for n, (name, priority, preemptible) in enumerate(holds)
    ]
    jobs = [
        waiting(f"w{n}", 10 + n, *(FOUR, TWO, ONE)[-plans:], project=name, priority=priority)
        for n, (name, priority, plans) in enumerate(queue)
    ]
    ledger = Ledger(found, [Holding(job.project, "rtx", 2) for job in held])
    decisions = decide(policy, jobs, (10, 10 - 2 * len(held)), ledger, held)
    before = Counter(job.project for job in held for _ in range(2))
    after = Counter(before)
    owner = {job.id: job.project for job in [*held, *jobs]}
    for one in decisions:
        if isinstance(one, Preempt):
            after[owner[one.job]] -= 2
        elif isinstance(one, Resize):
            after[owner[one.job]] += len(one.placement.devices) - 2
        elif isinstance(one, Place):
            after[owner[one.job]] += len(one.placement.devices)
    return decisions, before, after, 10 - sum(after.values())


@given(projects, waiters, holders, st.sampled_from(ALL))
def test_no_limit_is_ever_exceeded_by_what_starts(found, queue, holds, policy):
    _, before, after, idle = run(found, queue, holds, policy)
    assert idle >= 0
    for record in found:
        assert after[record.name] <= max(limit(record), before[record.name])


@given(projects, waiters, holders, st.sampled_from(PREEMPTIVE))
def test_whoever_waits_within_its_share_finds_nothing_idle_or_borrowed(found, queue, holds, policy):
    stoppable = [(name, priority, True) for name, priority, _ in holds]
    decisions, _, after, idle = run(found, queue, stoppable, policy)
    records = {record.name: record for record in found}
    for job in (one.job for one in decisions if isinstance(one, Hold)):
        record, least = records.get(job.project), min(p.device_count for p in job.plans)
        if record and after[job.project] + least <= min(share(record), limit(record)):
            borrowed = [
                max(after[name] - share(records[name]) if name in records else after[name], 0)
                for name in "pqr"
                if name != job.project
            ]
            assert idle + sum(borrowed) < least


def test_a_waiting_job_takes_less_where_a_running_one_keeps_its_part_of_the_limit():
    """Granted the whole limit first, it could not start beside the one that keeps its devices."""
    quota = DeviceQuota(nominal=4, limit=4)
    one_limit = Project(name="p", kinds={"rtx": DeviceQuota()}, devices=quota)
    decisions, _, after, _ = run([one_limit], [("p", 0, 3)], [("p", 0, True)], Frenzy())
    assert [type(one) for one in decisions] == [Place]
    assert after["p"] == 4


@stopping
def test_who_is_served_first_stays_first_when_a_limit_is_exceeded(policy):
    """Project q runs beyond its limit; that must not cost r its own device for those of p."""
    records = [
        Project(name="r", devices=DeviceQuota(nominal=1)),
        Project(name="q", devices=DeviceQuota(nominal=1, limit=1)),
    ]
    queue = [("p", 0, 1)] * 6 + [("r", 0, 2)]
    _, _, after, _ = run(records, queue, [("q", 0, True)] * 2, policy)
    assert after["r"] >= 1


@stopping
def test_what_a_job_gives_back_at_the_limit_goes_to_others_of_its_project(policy):
    records = [Project(name="p", devices=DeviceQuota(nominal=5, limit=5))]
    _, _, after, idle = run(records, [("p", 0, 1), ("p", 10, 3)], [("p", 13, True)], policy)
    assert after["p"] == 5
    assert idle == 5
