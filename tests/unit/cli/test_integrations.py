"""``frenzy admin integration``: keys that stay here, files that run."""

import json
import stat

import httpx
import pytest
from tests.support.api import NOW, ok, problem

from frenzy_shared.bus.keys import public_key
from frenzy_shared.messages.integrations import (
    IntegrationAccess,
    IntegrationList,
    IntegrationView,
)

ACCESS = IntegrationAccess(
    name="portal",
    url="tls://10.0.0.5:4222",
    stream="FRENZY_EVENTS",
    durable="integration-portal",
    inbox_prefix="_INBOX_integration-portal",
    authority="PEM\n",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "portal"


def test_create_writes_all_that_a_program_needs_and_sends_the_public_key_only(cli, folder):
    cli.api.on("POST", "/integrations", ok(ACCESS, 201))
    made = cli(
        "admin", "integration", "create", "portal", "--project", "vision", "--events",
        "job.failed, job.succeeded", "--history",
    )  # fmt: skip
    assert (made.code, made.out) == (0, "portal\n"), made.err
    assert "python portal/follow.py portal" in made.err
    body = json.loads(cli.api.requests[0].content)
    assert body == {
        "name": "portal",
        "public_key": public_key(folder / "key.nk"),
        "project": "vision",
        "events": ["job.failed", "job.succeeded"],
        "history": True,
    }
    assert (folder / "key.nk").read_text().strip() not in cli.api.requests[0].content.decode()
    assert {path.name for path in folder.iterdir()} == {
        "key.nk", "integration.json", "ca.pem", "follow.py",
    }  # fmt: skip
    assert stat.S_IMODE((folder / "key.nk").stat().st_mode) == 0o600
    about = json.loads((folder / "integration.json").read_text())
    assert (about["url"], about["durable"]) == ("tls://10.0.0.5:4222", "integration-portal")
    assert "authority" not in about


def test_files_of_another_one_are_never_overwritten(cli, folder):
    cli.api.on("POST", "/integrations", ok(ACCESS, 201))
    assert cli("admin", "integration", "create", "portal").code == 0
    key = (folder / "key.nk").read_text()
    again = cli("admin", "integration", "create", "portal")
    assert (again.code, len(cli.api.requests)) == (1, 1)
    assert "--out DIR" in again.err
    assert (folder / "key.nk").read_text() == key


def test_a_refused_request_leaves_no_key_behind(cli, folder):
    cli.api.on("POST", "/integrations", problem(422, "invalid_spec", "events: no"))
    assert cli("admin", "integration", "create", "portal", "--events", "x").code == 1
    assert not folder.exists()
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    cli.api.on("POST", "/integrations/portal:rotate", problem(404, "not_found", "no integration"))
    assert cli("admin", "integration", "rotate", "portal").code != 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_after_a_lost_answer_the_same_key_is_sent_again(cli, folder):
    cli.api.on("POST", "/integrations", problem(500, "internal", "no"), ok(ACCESS, 201))
    assert cli("admin", "integration", "create", "portal").code != 0
    key = public_key(folder / "key.nk")
    assert cli("admin", "integration", "create", "portal", "-q").err == ""
    assert json.loads(cli.api.requests[1].content)["public_key"] == key


def test_rotate_makes_a_new_key_in_a_folder_of_its_own(cli, folder, tmp_path):
    cli.api.on("POST", "/integrations/portal:rotate", ok(ACCESS))
    done = cli("admin", "integration", "rotate", "portal", "--out", str(tmp_path / "new"))
    assert done.code == 0, done.err
    body = json.loads(cli.api.requests[0].content)
    assert body == {"public_key": public_key(tmp_path / "new" / "key.nk")}


def test_the_list_tells_who_is_behind(cli):
    rows = (
        IntegrationView(name="a", project="vision", created_at=NOW, waiting=7, connected=True),
        IntegrationView(name="b", project="*", events=("node.lost",), missing=True),
    )
    cli.api.on("GET", "/integrations", ok(IntegrationList(integrations=rows)))
    lines = cli("admin", "integration", "list").out.splitlines()
    assert lines[1].split() == ["a", "vision", "all", "7", "0", "connected"]
    assert "consumer lost: rotate" in lines[2]
    assert cli("admin", "integration", "list", "-q").out == "a\nb\n"


def test_revoke(cli):
    cli.api.on("POST", "/integrations/portal:revoke", httpx.Response(204))
    assert cli("admin", "integration", "revoke", "portal").err == "integration portal is revoked\n"
