"""``frenzy admin``: a store whose history went backwards is shown, and put right on demand."""

import json

import pytest
from tests.support.api import NOW, ok, problem

from frenzy_shared.messages.http import DeadLetterList, DeadLetterView
from frenzy_shared.messages.v1 import Difference, Reconciliation

LATE = Difference(entity="job:j1", store="RUNNING, version 3", repair="becomes SUCCEEDED")
LOST = Difference(entity="job:j2", store="unknown", repair="becomes QUEUED")
FOUND = Reconciliation(safe_mode="an old copy", count=2, differences=(LATE, LOST))


def answer(cli, *results):
    cli.api.on("POST", "/admin/reconcile", *(ok(result) for result in results))


def test_what_differs_is_shown_and_nothing_is_changed(cli):
    answer(cli, FOUND)
    result = cli("admin", "reconcile")
    assert result.code == 0, result.err
    assert "job:j1" in result.out
    assert "becomes SUCCEEDED" in result.out
    assert "SAFE MODE: an old copy" in result.err
    assert "--apply" in result.err
    assert dict(cli.api.requests[0].url.params) == {"apply": "false"}


def test_apply_puts_it_right(cli):
    done = FOUND.model_copy(update={"applied": True, "safe_mode": ""})
    answer(cli, done)
    result = cli("admin", "reconcile", "--apply")
    assert "put right: 2 differences; SAFE MODE is over" in result.err
    assert dict(cli.api.requests[0].url.params) == {"apply": "true"}


def test_nodes_that_are_switched_off_are_named(cli):
    answer(cli, FOUND.model_copy(update={"applied": True, "safe_mode": ""}))
    assert cli("admin", "reconcile", "--apply", "--dead", "n1", "--dead", "n2").code == 0
    assert cli.api.requests[0].url.params.get_list("dead") == ["n1", "n2"]


def test_a_silent_node_keeps_it_from_being_applied(cli):
    why = "n2 did not say yet what runs there: wait, or confirm that it is dead"
    answer(cli, FOUND.model_copy(update={"silent": ("n2",), "refused": why}))
    result = cli("admin", "reconcile", "--apply")
    assert (result.code, why in result.err) == (1, True)


def test_a_silent_node_is_named_before_anything_is_applied(cli):
    answer(cli, FOUND.model_copy(update={"silent": ("n2",)}))
    result = cli("admin", "reconcile")
    assert result.code == 0
    assert "wait, or if switched off: --dead n2" in result.err


def test_without_safe_mode_there_is_nothing_to_do(cli):
    answer(cli, Reconciliation())
    result = cli("admin", "reconcile", "-o", "json")
    assert json.loads(result.out)["count"] == 0
    assert "nothing to put right" in result.err


def test_rebuild_is_for_an_empty_store(cli):
    answer(cli, FOUND)
    result = cli("admin", "rebuild", "--apply")
    assert (result.code, len(cli.api.requests)) == (1, 1)
    assert "the store is not empty" in result.err
    assert "frenzy admin reconcile" in result.err
    lost = FOUND.model_copy(update={"differences": (LOST,), "count": 1})
    answer(cli, lost, lost.model_copy(update={"applied": True, "safe_mode": ""}))
    assert "SAFE MODE is over" in cli("admin", "rebuild", "--apply").err


LETTER = DeadLetterView(
    id=3,
    time=NOW,
    subject="frenzy.v1.evd.n1.clean",
    stream="FRENZY_EVIDENCE",
    sequence=7,
    consumer="controller",
    deliveries=10,
    reason="ValueError('no')",
    size_bytes=17,
    excerpt="{}",
)


def letters(cli, *found):
    cli.api.on("GET", "/admin/dlq", ok(DeadLetterList(letters=found)))


def test_dead_letters_are_listed_over_pages(cli):
    other = LETTER.model_copy(update={"id": 4})
    first = DeadLetterList(letters=(LETTER,), next_after=3)
    cli.api.on("GET", "/admin/dlq", ok(first), ok(DeadLetterList(letters=(other,))))
    out = cli("admin", "dlq", "list").out
    assert "FRENZY_EVIDENCE 7" in out
    assert "ValueError('no')" in out
    assert cli("admin", "dlq", "list", "-q").out.split() == ["4"]


def test_letters_are_sent_again_or_dropped_by_id_or_all(cli):
    letters(cli, LETTER)
    for how, told in (("replay", "sent again: 3"), ("drop", "dropped: 3")):
        cli.api.on("POST", f"/admin/dlq/3:{how}", ok(LETTER))
        assert told in cli("admin", "dlq", how, "3").err
        assert told in cli("admin", "dlq", how, "--all").err
        assert cli("admin", "dlq", how).code == 1
        assert cli("admin", "dlq", how, "3", "--all").code == 1


@pytest.mark.parametrize(
    ("arguments", "path", "hint"),
    [
        (("admin", "dlq", "replay", "3"), "/admin/dlq/3:replay", "see: frenzy admin dlq list"),
        (("nodes", "drain", "nope"), "/nodes/nope:drain", "list nodes: frenzy nodes"),
    ],
)
def test_what_is_not_found_is_looked_for_where_it_is_listed(cli, arguments, path, hint):
    cli.api.on("POST", path, problem(404, "not_found", "no such thing", suggestions=[hint]))
    assert cli(*arguments).err == f"error: no such thing\n  try: {hint}\n"
