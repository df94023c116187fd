"""Which server is used: arguments, environment, user file."""

import stat

import pytest

from frenzy import config
from frenzy_shared.errors import Misconfigured


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    monkeypatch.delenv("FRENZY_URL", raising=False)
    monkeypatch.delenv("FRENZY_TOKEN", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_default_without_anything():
    server = config.resolve()
    assert (server.url, server.token, server.source) == (config.DEFAULT_URL, "", "default")


def test_the_file_is_private_and_found_again():
    config.save(config.user_file(), "http://127.0.0.1:9999", 'frz_"quoted"')
    assert stat.S_IMODE(config.user_file().stat().st_mode) == 0o600
    server = config.resolve()
    assert (server.url, server.token) == ("http://127.0.0.1:9999", 'frz_"quoted"')


def test_environment_wins_over_the_file_and_arguments_over_both(monkeypatch):
    config.save(config.user_file(), "http://file", "file-token")
    monkeypatch.setenv("FRENZY_URL", "http://environment/")
    monkeypatch.setenv("FRENZY_TOKEN", "environment-token")
    assert config.resolve().url == "http://environment"
    assert config.resolve().token == "environment-token"
    assert config.resolve("http://argument", "argument-token").token == "argument-token"


def test_a_stored_token_is_not_shown_to_another_server():
    config.save(config.user_file(), "http://file", "file-token")
    assert config.resolve("http://elsewhere").token == ""
    assert config.resolve("http://file/").token == "file-token"


def test_a_damaged_file_is_named():
    config.user_file().parent.mkdir()
    config.user_file().write_text("url = ")
    with pytest.raises(Misconfigured, match="config.toml"):
        config.resolve()


def test_a_url_must_be_one(monkeypatch):
    monkeypatch.setenv("FRENZY_URL", "localhost:8642")
    with pytest.raises(Misconfigured, match="FRENZY_URL.*not a URL"):
        config.resolve()
