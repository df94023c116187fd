"""``frenzy secret``: values come in by standard input or a prompt, and are never shown."""

import io
import json
from datetime import UTC, datetime

import httpx
import pytest
from tests.support.api import ok, problem

import frenzy.cli.commands.secrets as command
from frenzy_shared.messages.secrets import SecretList, SecretView

VALUE = "hunter2 with a blank"
VIEW = SecretView(name="hub", project="vision", updated_at=datetime(2026, 11, 30, 12, tzinfo=UTC))
PATH = "/projects/vision/secrets/hub"


@pytest.fixture
def typed(monkeypatch):
    """Write something to the next command's standard input."""

    def write(data: bytes) -> None:
        monkeypatch.setattr(command.sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return write


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_value_is_read_from_standard_input_without_its_last_newline(cli, typed, end):
    cli.api.on("PUT", PATH, ok(VIEW))
    typed(f"{VALUE}{end}".encode())
    result = cli("secret", "set", "hub", "--project", "vision")
    assert result.code == 0, result.err
    (sent,) = cli.api.sent("PUT", PATH)
    assert sent.content == VALUE.encode()
    assert sent.headers["content-type"] == "text/plain; charset=utf-8"
    assert "secrets: {VARIABLE: hub}" in result.err
    assert VALUE not in result.out + result.err


def test_a_person_is_asked_twice_and_what_is_typed_is_hidden(cli, monkeypatch):
    asked = {}

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def prompt(text, **options):
        asked.update(options, text=text)
        return VALUE

    monkeypatch.setattr(command.sys, "stdin", Terminal())
    monkeypatch.setattr(command.typer, "prompt", prompt)
    cli.api.on("PUT", PATH, ok(VIEW))
    assert cli("secret", "set", "hub", "--project", "vision", "-q").err == ""
    assert cli.api.sent("PUT", PATH)[0].content == VALUE.encode()
    assert (asked["hide_input"], asked["confirmation_prompt"]) == (True, True)
    assert cli("secret", "set", "hub", "--no-input").code == 1


@pytest.mark.parametrize(("data", "said"), [(b"", "no value"), (b"\xff\xfe", "not UTF-8")])
def test_what_cannot_be_a_value_is_refused_before_anything_is_sent(cli, typed, data, said):
    typed(data)
    result = cli("secret", "set", "hub")
    assert result.code == 1
    assert said in result.err


def test_a_value_is_no_argument(cli):
    result = cli("secret", "set", "hub", VALUE)
    assert result.code == 2


def test_names_are_listed_and_deleted(cli):
    cli.api.on("GET", "/projects/vision/secrets", ok(SecretList(secrets=(VIEW,))))
    out = cli("secret", "list", "--project", "vision").out
    assert out.splitlines()[1].split() == ["hub", "2026-11-30", "12:00", "UTC"]
    assert cli("secret", "list", "--project", "vision", "-q").out == "hub\n"
    listed = cli("secret", "list", "--project", "vision", "-o", "json").out
    assert json.loads(listed) == [VIEW.model_dump(mode="json")]
    cli.api.on("DELETE", PATH, httpx.Response(204))
    result = cli("secret", "delete", "hub", "--project", "vision")
    assert result.err == "secret hub of project vision is deleted\n"
    cli.api.on("DELETE", PATH, problem(404, "not_found", "project vision has no secret 'hub'"))
    assert cli("secret", "delete", "hub", "--project", "vision").code == 102
