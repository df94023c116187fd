"""Run the command line in this process against a scripted API."""

from dataclasses import dataclass

import httpx
import pytest
from tests.support.api import ScriptedApi

import frenzy.client
from frenzy.cli.app import run
from frenzy.exchange import Retry


@dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str


class CommandLine:
    """Calls ``frenzy`` with arguments."""

    def __init__(self, api, capsys):
        self.api = api
        self._capsys = capsys

    def __call__(self, *arguments):
        code = int(run(arguments))
        captured = self._capsys.readouterr()
        return Result(code=code, out=captured.out, err=captured.err)


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """The command line with an empty home, no environment and a scripted server."""
    api = ScriptedApi()
    original = httpx.Client

    def scripted(**options):
        return original(**{**options, "transport": httpx.MockTransport(api)})

    monkeypatch.setattr(frenzy.client.httpx, "Client", scripted)
    monkeypatch.setattr(frenzy.client, "Retry", lambda: Retry(attempts=2, base_s=0, cap_s=0))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.delenv("FRENZY_URL", raising=False)
    monkeypatch.delenv("FRENZY_TOKEN", raising=False)
    return CommandLine(api, capsys)
