"""Tokens and projects: stored, announced, and written back from what was announced."""

import pytest
from tests.support.state import submission

from frenzy_shared.domain.project import Project
from frenzy_shared.errors import SafeMode
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.decisions import STORED, project_changed, token_created, token_revoked
from frenzy_shared.state.keeper import Decision, Leave, Restore
from frenzy_shared.state.port import Status, TokenRecord

LEASE = ("control", "me")
SHA = "ab" * 32


def token(name: str, created_ms: int = 1, project: str = "vision") -> TokenRecord:
    return TokenRecord(
        id=name,
        secret_sha256=SHA,
        role="submitter",
        project=project,
        name="ann",
        created_ms=created_ms,
        expires_ms=0,
    )


async def put(store, *tokens):
    for one in tokens:
        await store.put_token(one, token_created(one, "ops"))


async def test_tokens_are_read_by_age_with_when_they_were_used(store):
    assert await store.tokens() == ()
    await put(store, token("b", 2), token("a", 3))
    await store.put_token(token("c", 1))
    await store.use_token("a", 77)
    await store.use_token("never-made", 77)
    assert await store.token("a") == token("a", 3)
    assert [(one.id, one.used_ms) for one in await store.tokens()] == [
        ("c", 0),
        ("b", 0),
        ("a", 77),
    ]


async def test_a_token_stored_again_keeps_when_it_was_used(store):
    await put(store, token("a"))
    await store.use_token("a", 5)
    await put(store, token("a"))
    assert [one.used_ms for one in await store.tokens()] == [5]


async def test_a_removed_token_is_nowhere(store):
    await put(store, token("a"))
    assert await store.delete_token("a", token_revoked(token("a"), "ops"))
    assert not await store.delete_token("a", token_revoked(token("a"), "ops"))
    assert await store.token("a") is None
    assert await store.tokens() == ()
    await store.use_token("a", 5)
    assert await store.tokens() == ()


async def test_decisions_are_announced_and_numbered(store):
    await put(store, token("a"))
    await store.put_project(Project(name="vision", weight=2.0), project_changed_by("ann"))
    await store.delete_token("a", token_revoked(token("a"), "ops"))
    entries = await store.read_outbox("", 99)
    assert [(e.message_id, e.subject, e.record["version"]) for e in entries] == [
        ("token:a:1:0", "frenzy.v1.dec.token.a", 1),
        ("token:a:1:1", "frenzy.v1.evt.cluster.token.created.a", 1),
        ("project:vision:2:0", "frenzy.v1.dec.project.vision", 2),
        ("project:vision:2:1", "frenzy.v1.evt.vision.project.changed.vision", 2),
        ("token:a:3:0", "frenzy.v1.dec.token.a", 3),
        ("token:a:3:1", "frenzy.v1.evt.cluster.token.revoked.a", 3),
    ]
    assert entries[0].data[STORED] == to_json(token("a"))
    assert entries[4].data[STORED] is None
    assert (entries[3].data, entries[3].record["weight"]) == ({"by": "ann"}, 2.0)
    history = await store.history()
    assert (history.posted, history.decisions) == (6, 3)


def project_changed_by(name: str):
    return project_changed(Project(name="vision", weight=2.0), name)


async def test_events_of_tokens_hold_no_hash(store):
    await put(store, token("a"))
    kept, event = await store.read_outbox("", 9)
    assert SHA in str(kept.data)
    assert SHA not in f"{event.data}{event.record}{kept.record}"
    assert (event.record["scope"], event.record["role"]) == ("vision", "submitter")
    assert "project" not in event.record  # the event is the cluster's, not the project's


async def test_what_nobody_decided_is_not_announced(store):
    await store.put_token(token("admin"))
    await store.put_project(Project(name="vision"))
    assert await store.read_outbox("", 9) == ()
    assert (await store.history()).decisions == 0


async def test_in_safe_mode_nothing_is_decided(store):
    await put(store, token("a"))
    await store.enter_safe_mode("it went backwards")
    with pytest.raises(SafeMode, match="it went backwards"):
        await put(store, token("b"))
    with pytest.raises(SafeMode):
        await store.delete_token("a", token_revoked(token("a"), "ops"))
    with pytest.raises(SafeMode):
        await store.put_project(Project(name="vision"), project_changed_by("ann"))
    await store.put_token(token("admin"))  # the operator must get in
    assert {one.id for one in await store.tokens()} == {"a", "admin"}


async def restore(store, *decisions):
    await store.acquire_lease(*LEASE, 100)
    await store.enter_safe_mode("why")
    found = Restore(lease=LEASE, gen="abc", posted=0, decisions=decisions)
    return await store.restore("op", found)


def kept(kind: str, name: str, version: int, stored) -> Decision:
    value = None if stored is None else to_json(stored)
    return Decision(kind=kind, id=name, version=version, stored=value)


async def test_an_empty_store_gets_all_decisions_back(store):
    vision = Project(name="vision", weight=2.0, max_unfinished_jobs=0)
    result = await restore(
        store,
        kept("token", "a", 3, token("a")),
        kept("token", "gone", 9, None),
        kept("project", "vision", 4, vision),
    )
    assert result.ok
    assert await store.token("a") == token("a")
    assert await store.tokens() == (token("a"),)
    assert await store.projects() == (vision,)
    assert (await store.history()).decisions == 9
    await leave(store)
    refused = await store.submit("op2", submission("j1", project="vision"))
    assert refused.status is Status.QUOTA


async def test_an_old_copy_gets_only_what_it_has_not_counted(store):
    await put(store, token("a"), token("b"))
    await store.put_project(Project(name="vision", weight=3.0), project_changed_by("ann"))
    await restore(
        store,
        kept("token", "a", 1, token("a", created_ms=99)),  # an older word than the store's own
        kept("token", "b", 4, None),
        kept("project", "vision", 5, Project(name="vision", weight=5.0)),
    )
    assert await store.token("a") == token("a")
    assert await store.token("b") is None
    assert [project.weight for project in await store.projects()] == [5.0]
    await leave(store)
    await put(store, token("c"))
    assert (await store.read_outbox("", 99))[-1].record["version"] == 6


async def leave(store):
    assert (await store.leave_safe_mode("leave", Leave(lease=LEASE, owners={}))).ok
