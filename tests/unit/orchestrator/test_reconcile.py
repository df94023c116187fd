"""Desired against held: every rule, and what must hold whatever comes in which order."""

from hypothesis import given
from hypothesis import strategies as st

from frenzy_orchestrator.core.reconcile import (
    AttemptKey,
    Forget,
    Go,
    Held,
    Order,
    Prepare,
    Reaffirm,
    Refuse,
    Stage,
    Standing,
    Stop,
    WarmUp,
    reconcile,
    standing,
)


def key(job="j1", attempt=1):
    return AttemptKey(job=job, attempt=attempt)


def decide(wanted, held=None, *, asked=(), ended=None):
    return reconcile(wanted, held or {}, asked=asked, ended=ended or {})


def test_an_unknown_attempt_is_prepared():
    assert decide({key(): Order.PREPARE}) == (Prepare(key=key()),)


def test_go_needs_a_prepared_attempt():
    held = {key(): Held(stage=Stage.PREPARED)}
    assert decide({key(): Order.GO}, held) == (Go(key=key()),)
    assert decide({key(): Order.GO}, {key(): Held(stage=Stage.PREPARING)}) == ()
    (refusal,) = decide({key(): Order.GO})
    assert isinstance(refusal, Refuse)


def test_repeating_an_order_changes_nothing():
    for stage, order in ((Stage.PREPARING, Order.PREPARE), (Stage.ACTIVE, Order.GO)):
        assert decide({key(): order}, {key(): Held(stage=stage)}) == ()
    assert decide({key(): Order.STOP}, {key(): Held(stage=Stage.ACTIVE, buried=True)}) == ()


def test_a_stop_reaches_known_and_unknown_attempts():
    assert decide({key(): Order.STOP}) == (Stop(key=key(), listed=True),)
    held = {key(): Held(stage=Stage.ACTIVE)}
    assert decide({key(): Order.STOP}, held) == (Stop(key=key(), listed=True),)


def test_a_clean_attempt_answers_again():
    held = {key(): Held(stage=Stage.CLEAN, buried=True)}
    assert decide({key(): Order.STOP}, held) == (Reaffirm(key=key()),)
    assert isinstance(decide({key(): Order.PREPARE}, held)[0], Refuse)


def test_an_attempt_older_than_one_that_ended_is_refused():
    held = {key(attempt=3): Held(stage=Stage.ACTIVE, buried=True)}
    assert isinstance(decide({key(attempt=2): Order.PREPARE}, held)[0], Refuse)
    assert isinstance(decide({key(attempt=2): Order.PREPARE}, ended={"j1": 2})[0], Refuse)
    assert decide({key(attempt=4): Order.PREPARE}, held) == (Prepare(key=key(attempt=4)),)
    assert decide({key("j2", 2): Order.PREPARE}, held) == (Prepare(key=key("j2", 2)),)


def test_a_successor_is_warmed_up_beside_the_attempt_and_goes_when_that_has_ended():
    old, new = key(attempt=1), key(attempt=2)
    held = {old: Held(stage=Stage.ACTIVE), new: Held(stage=Stage.PREPARED)}
    wanted = {old: Order.GO, new: Order.WARM}
    assert decide(wanted, held) == (WarmUp(key=new),)
    assert decide(wanted, held | {new: Held(stage=Stage.WARMING)}) == ()
    ended = {old: Held(stage=Stage.CLEAN, buried=True), new: Held(stage=Stage.WARMING)}
    assert decide({new: Order.GO}, ended) == (Go(key=new),)


def test_a_successor_that_was_given_up_does_not_end_the_attempt_that_runs():
    old, new = key(attempt=1), key(attempt=2)
    held = {old: Held(stage=Stage.ACTIVE), new: Held(stage=Stage.WARMING)}
    assert decide({old: Order.GO, new: Order.STOP}, held) == (Stop(key=new, listed=True),)
    buried = held | {new: Held(stage=Stage.WARMING, buried=True)}
    assert decide({old: Order.GO, new: Order.STOP}, buried) == ()
    assert decide({old: Order.GO, new: Order.GO}, buried) == ()
    assert isinstance(decide({new: Order.WARM})[0], Refuse)


def test_a_complete_set_stops_only_what_its_heartbeat_named():
    held = {key("old"): Held(stage=Stage.ACTIVE), key("new"): Held(stage=Stage.PREPARING)}
    assert decide({}, held, asked={key("old")}) == (Stop(key=key("old"), listed=False),)
    assert decide({}, held) == ()


def test_a_clean_attempt_that_is_left_out_is_forgotten():
    held = {key(): Held(stage=Stage.CLEAN)}
    assert decide({}, held, asked={key()}) == (Forget(key=key()),)


def test_stops_come_first():
    held = {key("j2"): Held(stage=Stage.ACTIVE)}
    actions = decide({key("j1"): Order.PREPARE, key("j2"): Order.STOP}, held)
    assert isinstance(actions[0], Stop)


def test_epochs():
    assert standing(set_epoch=3, fenced=False, own_epoch=3) is Standing.CURRENT
    assert standing(set_epoch=2, fenced=False, own_epoch=3) is Standing.STALE
    assert standing(set_epoch=2, fenced=False, own_epoch=0) is Standing.STALE
    assert standing(set_epoch=4, fenced=False, own_epoch=3) is Standing.FENCED
    assert standing(set_epoch=3, fenced=True, own_epoch=3) is Standing.FENCED


keys = st.builds(AttemptKey, job=st.sampled_from("ab"), attempt=st.integers(1, 4))
held_attempts = st.builds(Held, stage=st.sampled_from(Stage), buried=st.booleans())


@given(
    wanted=st.dictionaries(keys, st.sampled_from(Order)),
    held=st.dictionaries(keys, held_attempts),
    asked=st.sets(keys),
    ended=st.dictionaries(st.sampled_from("ab"), st.integers(1, 4)),
)
def test_safety_whatever_the_sets(wanted, held, asked, ended):
    actions = reconcile(wanted, held, asked=asked, ended=ended)
    assert len({action.key for action in actions}) == len(actions)
    for action in actions:
        before = held.get(action.key)
        if isinstance(action, Prepare | WarmUp | Go):
            assert before is None or not before.buried
            assert wanted[action.key] is not Order.STOP
        if isinstance(action, Prepare):
            ended_here = [
                k.attempt
                for k, h in held.items()
                if k.job == action.key.job and (h.buried or h.stage is Stage.CLEAN)
            ]
            assert action.key.attempt > max([*ended_here, ended.get(action.key.job, 0)])
        if isinstance(action, Go):
            assert before in (Held(stage=Stage.PREPARED), Held(stage=Stage.WARMING))
        if isinstance(action, WarmUp):
            assert before == Held(stage=Stage.PREPARED)
        if isinstance(action, Stop) and not action.listed:
            assert action.key in asked
