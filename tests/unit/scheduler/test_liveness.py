from tests.support.scheduling import node

from frenzy_scheduler.core.liveness import Judgement, Watch
from frenzy_shared.domain.cluster import NodeState


def watch(since=0.0):
    return Watch(suspect_after_s=20, lost_after_s=60, frozen_after_s=1000, since=since)


def judgements(judged):
    return {verdict.node.id: verdict.judgement for verdict in judged.verdicts}


def heard(names, at, watch_):
    for name in names:
        watch_.hear(name, at)
    return watch_


THREE = [node("a"), node("b"), node("c")]


def test_silence_makes_a_node_suspect_then_lost():
    seen = heard("abc", 0, watch())
    heard("ab", 19, seen)
    assert judgements(seen.judge(THREE, 19.9)) == {}
    assert judgements(seen.judge(THREE, 20)) == {"c": Judgement.SUSPECT}
    heard("ab", 59, seen)
    suspect = [*THREE[:2], node("c", state=NodeState.SUSPECT)]
    assert judgements(seen.judge(suspect, 59)) == {}
    (verdict,) = seen.judge(suspect, 60).verdicts
    assert (verdict.judgement, verdict.silent_s) == (Judgement.LOST, 60)


def test_what_was_missed_before_watching_counts_for_nobody():
    seen = watch(since=100)
    seen.hear("a", 10)
    assert judgements(seen.judge([node("a")], 119)) == {}
    assert judgements(seen.judge([node("a")], 120)) == {"a": Judgement.SUSPECT}


def test_a_frozen_observer_starts_anew():
    seen = Watch(suspect_after_s=20, lost_after_s=60, frozen_after_s=5, since=0)
    heard("a", 1, seen)
    seen.judge([node("a")], 4)
    assert judgements(seen.judge([node("a")], 400)) == {}
    assert seen.silent_s("a", 401) == 1


def test_when_most_nodes_vanish_nobody_is_lost_but_no_new_work_goes_there():
    seen = heard("a", 70, watch())
    judged = seen.judge(THREE, 75)
    assert judgements(judged) == {"b": Judgement.SUSPECT, "c": Judgement.SUSPECT}
    assert judged.withheld == ("b", "c")


def test_most_nodes_are_counted_even_when_they_vanish_some_seconds_apart():
    seen = heard("c", 8, watch())
    heard("a", 62, seen)
    assert seen.judge(THREE, 63).withheld == ("b",)


def test_the_last_to_come_back_after_a_common_silence_is_not_lost_for_it():
    seen = heard("abc", 0, watch())
    assert seen.judge(THREE, 70).withheld == ("a", "b", "c")
    heard("ab", 71, seen)
    assert judgements(seen.judge(THREE, 71)) == {}
    heard("ab", 130, seen)
    assert judgements(seen.judge(THREE, 130.9)) == {"c": Judgement.SUSPECT}
    assert judgements(seen.judge(THREE, 131)) == {"c": Judgement.LOST}


def test_one_of_two_and_the_only_node_can_be_lost():
    seen = heard("a", 70, watch())
    assert judgements(seen.judge(THREE[:2], 70)) == {"b": Judgement.LOST}
    assert judgements(watch().judge([node("a")], 60)) == {"a": Judgement.LOST}


def test_lost_nodes_are_not_judged_again_and_do_not_count():
    seen = heard("a", 70, watch())
    nodes = [node("a"), node("b", state=NodeState.LOST), node("c", state=NodeState.LOST)]
    assert seen.judge(nodes, 71).verdicts == ()
