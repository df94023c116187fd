"""``frenzy nodes``: looking, draining, and giving one's word."""

import json

import httpx
from tests.support.api import node_list, ok, problem

NODE = node_list().nodes[0]


def with_device(**fields):
    device = NODE.devices[0].model_copy(update=fields)
    return NODE.model_copy(update={"devices": (device,)})


def test_the_list_says_why_gpus_cannot_be_used(cli):
    quarantined = with_device(owner="!quarantine:lost j1#2", attempt=None)
    drained = quarantined.model_copy(
        update={"state": "DRAINING", "reason": "drained by ann", "drain": "drained by ann"}
    )
    cli.api.on("GET", "/nodes", ok(node_list().model_copy(update={"nodes": (drained,)})))
    out = cli("nodes").out
    assert "DRAINING" in out
    name = NODE.devices[0].id
    assert f"drained by ann; {name} is quarantined: lost j1#2" in out


def test_drain_with_a_deadline(cli):
    drained = NODE.model_copy(update={"state": "DRAINING", "drain": "drained by ann: fan"})
    cli.api.on("POST", "/nodes/node-a:drain", ok(drained))
    result = cli("nodes", "drain", "node-a", "--reason", "fan", "--deadline", "30m")
    assert result.code == 0, result.err
    assert f"node {NODE.id} is DRAINING: drained by ann: fan" in result.err
    (sent,) = cli.api.sent("POST", "/nodes/node-a:drain")
    assert json.loads(sent.content) == {"reason": "fan", "deadline_s": 1800.0}


def test_a_deadline_that_is_none_is_refused_before_anything_is_sent(cli):
    result = cli("nodes", "drain", "node-a", "--deadline", "soon")
    assert result.code == 1
    assert "--deadline" in result.err
    assert not cli.api.requests


def test_waiting_until_nothing_runs_there(cli, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    busy = with_device(owner="job1", attempt=1)
    idle = with_device(owner="", attempt=None)
    cli.api.on("POST", f"/nodes/{NODE.id}:drain", ok(busy))
    lists = (node_list().model_copy(update={"nodes": (node,)}) for node in (busy, idle))
    cli.api.on("GET", "/nodes", *(ok(nodes) for nodes in lists))
    result = cli("nodes", "drain", NODE.id, "--wait")
    assert (result.code, result.err.count("waiting for job1")) == (0, 2)


def test_confirm_dead_needs_ones_word(cli):
    cli.api.on("POST", "/nodes/node-a:confirm-dead", ok(NODE))
    assert "give --yes" in cli("nodes", "confirm-dead", "node-a").err
    assert not cli.api.requests
    assert cli("nodes", "confirm-dead", "node-a", "--yes").code == 0


def test_a_refusal_is_told_with_what_to_do(cli):
    text = "node node-a is UP: its agent answers, so it is not dead"
    cli.api.on("POST", "/nodes/node-a:confirm-dead", problem(409, "invalid_state", text))
    result = cli("nodes", "confirm-dead", "node-a", "--yes")
    assert result.code == 1
    assert text in result.err


def test_undrain(cli):
    cli.api.on("POST", "/nodes/node-a:undrain", ok(NODE))
    assert f"node {NODE.id} is UP" in cli("nodes", "undrain", "node-a").err


def test_forget(cli):
    cli.api.on("DELETE", "/nodes/node-a", httpx.Response(204))
    result = cli("nodes", "forget", "node-a")
    assert (result.code, result.err) == (0, "node node-a is forgotten\n")
    assert cli.api.sent("DELETE", "/nodes/node-a")
