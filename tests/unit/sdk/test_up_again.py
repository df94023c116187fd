"""A further `frenzy up`: other options are refused, and joined nodes are not forgotten silently."""

import pytest
from tests.support.cli import cli

from frenzy.cli.commands import local
from frenzy.local import control
from frenzy.local.again import left_behind, require_same
from frenzy.local.files import write_json
from frenzy.local.layout import Layout, default_layout
from frenzy.local.options import Options
from frenzy.local.status import Phase, Status
from frenzy_shared.bus.nats_permissions import BusRole
from frenzy_shared.bus.nats_users import Identity, UsersFile
from frenzy_shared.errors import Misconfigured

__all__ = ["cli"]

RUNS = Options(port=0, nodes={"a": ""}, replicas={"marp": 2}, settings={"FRENZY_POLICY": "frenzy"})
URL = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    "asked",
    [
        Options(),
        Options(port=9000),
        Options(port=0, nodes={"a": ""}),
        Options(replicas={"marp": 2, "gateway": 1}, settings={"FRENZY_POLICY": "frenzy"}),
    ],
)
def test_what_runs_already_may_be_asked_for(asked):
    require_same(asked, RUNS, URL)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Options(settings={"FRENZY_POLICY": "has"}), "FRENZY_POLICY=has (runs: frenzy)"),
        (Options(settings={"FRENZY_LOG_LEVEL": "x"}), "FRENZY_LOG_LEVEL=x (runs: its default)"),
        (Options(port=9001), "--port 9001 (runs: 9000)"),
        (Options(listen="10.0.0.5"), "--listen 10.0.0.5 (runs: loopback only)"),
        (Options(bus_port=5000), "--bus-port 5000 (runs: 4222)"),
        (Options(nodes={"b": ""}), "--emulated (runs: a"),
        (Options(replicas={"gateway": 2}), "--replicas gateway=2 (runs: 1)"),
    ],
)
def test_other_options_are_named_beside_what_runs(asked, says):
    with pytest.raises(Misconfigured) as caught:
        require_same(asked, RUNS, URL)
    assert says in caught.value.message
    assert "frenzy down" in caught.value.suggestions[0]


def test_the_command_refuses_them_and_a_plain_up_says_what_runs(cli, monkeypatch):
    layout = default_layout()
    layout.create()
    write_json(layout.options, RUNS.to_json())
    status = Status(phase=Phase.READY, detail="", url=URL, supervisor=None, children=())
    monkeypatch.setattr(control, "running", lambda _: status)
    monkeypatch.setattr(control, "wait_ready", lambda *_: status)
    monkeypatch.setattr(local, "_safe_mode", lambda _: "")
    refused = cli("up", "--set", "FRENZY_POLICY=has")
    assert (refused.code, refused.out) == (1, "")
    assert "--set FRENZY_POLICY=has (runs: frenzy)" in refused.err
    plain = cli("up")
    assert (plain.code, plain.out) == (0, f"{URL}\n")


def test_joined_nodes_are_left_behind_only_by_an_up_that_stops_listening(tmp_path):
    layout = Layout(tmp_path)
    listened = Options(listen="10.0.0.5")
    assert left_behind(layout, Options(), listened) == ()
    own = Identity(role=BusRole.NODE, name="own", public_key="U" + "A" * 55)
    far = Identity(role=BusRole.NODE, name="far", public_key="U" + "B" * 55, token_id="t")
    UsersFile(layout.bus_users).put(own, far)
    assert left_behind(layout, Options(), listened) == ("far",)
    assert left_behind(layout, listened, listened) == ()
    assert left_behind(layout, Options(), Options()) == left_behind(layout, Options(), None) == ()
