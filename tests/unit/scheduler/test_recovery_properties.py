"""Whatever was lost, what recovery writes is consistent: hypothesis makes the histories."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduling import device, node

from frenzy_scheduler.core.recovery import Held, Inventory, Limits, Witness, repairs, timers_of
from frenzy_scheduler.core.steps import Rules
from frenzy_shared.domain.cluster import NodeState, owner_token
from frenzy_shared.domain.job import PLACED, TERMINAL, JobRecord, JobState, Successor
from frenzy_shared.domain.placement import DeviceRef, Placement

NODES = ("a", "b", "c")
LIMITS = Limits(hold_until_ms=10_000, forgotten_before_ms=0)
WAITING = (JobState.SUBMITTED, JobState.QUEUED)


def life(number: int, length: int) -> list[JobRecord]:
    """Return the versions of one job's record, which uses device ``number`` of every node.

    In the middle its next attempt gets ready ("+"), and is dropped.
    """
    record = JobRecord(
        id=f"j{number}",
        project="p",
        name="n",
        state=JobState.SUBMITTED,
        version=1,
        sequence=number + 1,
    )
    versions = [record]
    steps = (
        "QUEUED",
        "RESERVED",
        "STARTING",
        "RUNNING",
        "RUNNING+",
        "STOPPING+",
        "QUEUED",
        "RESERVED",
        "FAILED",
    )
    for step in steps[:length]:
        opened = record.successor.attempt if record.successor else record.attempt
        attempt = opened + 1 if step == "RESERVED" else record.attempt
        state, moving = JobState(step.rstrip("+")), step.endswith("+")
        placed = state in PLACED
        successor = Successor(attempt=attempt + 1, placement=on(number, attempt + 1))
        gone = replace(successor, dropped="why", clean=successor.placement.nodes)
        record = replace(
            record,
            state=state,
            version=record.version + 1,
            attempt=attempt,
            owned_devices=int(placed) + moving,
            placement=on(number, attempt) if placed else None,
            successor=successor if moving else gone if step == "QUEUED" and attempt else None,
            updated_ms=record.version,
        )
        versions.append(record)
    return versions


def on(number: int, attempt: int) -> Placement:
    ref = DeviceRef(node=NODES[(number + attempt) % 3], device=f"rtx-{number}", epoch=1)
    return Placement(plan="p1", kind="rtx", devices=(ref,))


def attempts(record: JobRecord) -> dict[int, Placement]:
    """Return what holds devices: the attempt, and its successor."""
    if record.state not in PLACED:
        return {}
    both = [(record.attempt, record.placement)]
    both += [(s.attempt, s.placement) for s in [record.successor] if s is not None]
    return dict(both)


@st.composite
def worlds(draw):
    """A history, what was published of it, what the store kept of it, and what nodes say."""
    true, past, present, held = {}, {}, {}, {name: [] for name in NODES}
    for number in range(draw(st.integers(0, 4))):
        versions = life(number, draw(st.integers(0, 9)))
        true[versions[0].id] = versions[-1]
        published = draw(st.integers(1, len(versions)))
        past[versions[0].id] = versions[published - 1]
        kept = draw(st.integers(0, published))
        if kept:
            present[versions[0].id] = versions[kept - 1]
        for attempt, placement in attempts(versions[-1]).items():
            where = placement.nodes[0]
            said = draw(st.sampled_from([(f"rtx-{number}",), ()]))
            held[where].append(Held(node=where, job=f"j{number}", attempt=attempt, devices=said))
    devices = [device(f"rtx-{number}", "rtx") for number in range(4)]
    known = {name: node(name, *devices) for name in NODES}
    told = [
        Inventory(
            node=name,
            epoch=draw(st.integers(1, 9)),
            devices=known[name].devices,
            held=tuple(held[name]),
        )
        for name in NODES
        if draw(st.booleans())
    ]
    witnesses = (Witness(jobs=past, nodes=known), Witness(jobs=present, nodes={}))
    return true, witnesses, told


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_what_is_restored_is_consistent_and_never_older(world):
    _, (past, present), told = world
    found = repairs(past, present, {}, told, LIMITS)
    final = {**present.jobs, **{repair.record.id: repair.record for repair in found.jobs}}
    assert set(final) == {*past.jobs, *present.jobs}
    owned = [owner for owner in found.owners.values() if owner and not owner.startswith("!")]
    assert len(owned) == len(set(owned))
    for name, record in final.items():
        newest = max(w.jobs[name].version for w in (past, present) if name in w.jobs)
        assert record.version - newest in (0, 1)
        mine = {owner_token(name, n): p.devices[0].key for n, p in attempts(record).items()}
        owners = found.owners.items()
        assert mine == {owner: key for key, owner in owners if owner.startswith(f"{name}#")}
        assert record.owned_devices == len(mine)
    assert set(found.silent) == set(NODES) - {inventory.node for inventory in told}


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_no_job_may_start_while_a_node_that_spoke_still_runs_it(world):
    _, (past, present), told = world
    found = repairs(past, present, {}, told, LIMITS)
    final = {**present.jobs, **{repair.record.id: repair.record for repair in found.jobs}}
    for inventory in told:
        for held in inventory.held:
            record = final[held.job]
            known = [w.jobs[held.job] for w in (past, present) if held.job in w.jobs]
            newest = attempts(max(known, key=lambda one: one.version)) if known else {}
            remembered = held.attempt in newest  # so its device is, whatever its node says
            unsaid = [f"rtx-{held.job[1:]}"] if remembered else [f"rtx-{n}" for n in range(4)]
            names = held.devices or unsaid
            assert all(found.owners[f"{held.node}/{name}"] for name in names)
            if record.state in WAITING:
                assert record.attempt >= held.attempt
                assert record.not_before_ms == LIMITS.hold_until_ms
            elif record.state not in TERMINAL:
                assert attempts(record)[held.attempt].nodes == (held.node,)


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_nodes_prove_themselves_before_they_get_work(world):
    _, (past, present), told = world
    found = repairs(past, present, {}, told, LIMITS)
    epochs = {inventory.node: inventory.epoch for inventory in told}
    for repair in found.nodes:
        assert repair.record.state is NodeState.SUSPECT
        assert repair.record.epoch >= epochs.get(repair.record.id, 1)


def test_every_state_that_can_get_stuck_has_a_timer():
    limits = Rules(max_duration_s=60.0)
    for record in life(0, 9):
        timers = [timer.id.split(":")[0] for timer in timers_of(record, limits, 0)]
        wanted = {
            JobState.SUBMITTED: ["replan"],
            JobState.RESERVED: ["prepare"],
            JobState.STARTING: ["go"],
            JobState.RUNNING: ["max_duration"] + ["warm"] * (record.successor is not None),
            JobState.STOPPING: ["stop"],
        }
        assert timers == wanted.get(record.state, [])
    held = replace(life(0, 1)[-1], not_before_ms=5000)
    (timer,) = timers_of(held, limits, 1000)
    assert (timer.id, timer.after_s) == ("backoff:j0:0", 4.0)
