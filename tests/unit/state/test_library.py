"""The Lua library and its Python twin: the same bounds, the same words, a version."""

import re

import pytest

from frenzy_shared.domain.job import TERMINAL
from frenzy_shared.errors import Misconfigured
from frenzy_shared.state import rules, server

CODE = server.functions_code()


def lua_number(name: str) -> int:
    match = re.search(rf"^local {name} = (\d+)\b", CODE, re.MULTILINE)
    assert match, name
    return int(match[1])


def lua_set(name: str) -> set[str]:
    match = re.search(rf"^local {name} = \{{(.*?)\}}", CODE, re.MULTILINE | re.DOTALL)
    assert match, name
    return set(re.findall(r"(\w+) = true", match[1]))


@pytest.mark.parametrize(
    "name",
    ["OP_MEMO_S", "IDEMPOTENCY_S", "TIMER_REPEAT_MS", "OUTBOX_KEEP_MS", "TIMELINE_KEEP"],
)
def test_bounds_agree(name):
    assert lua_number(name) == getattr(rules, name)


def test_states_agree():
    assert lua_set("TERMINAL") == TERMINAL
    assert lua_set("OWNS_NOTHING") == rules.OWNS_NOTHING


def test_the_library_names_itself_and_its_version():
    assert CODE.startswith(f"#!lua name={server.LIBRARY}\n")
    assert server.functions_version(CODE) >= 1


def test_loads_into_an_empty_server_and_over_an_older_library():
    older = CODE.replace(f"VERSION = {server.functions_version(CODE)}", "VERSION = 0")
    assert server.must_load(None, CODE)
    assert server.must_load(older, CODE)
    assert server.must_load("#!lua name=frenzy1\n", CODE)
    assert not server.must_load(CODE, CODE)


def test_the_same_version_with_other_code_is_replaced():
    assert server.must_load(CODE + "-- edited\n", CODE)


def test_a_newer_library_is_refused():
    present = f"VERSION = {server.functions_version(CODE)}"
    with pytest.raises(Misconfigured, match="version 99"):
        server.must_load(CODE.replace(present, "VERSION = 99"), CODE)


GOOD = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


@pytest.mark.parametrize("version", ["7.0.15", "7.2.4", "8.0.0", "10.1.2"])
def test_takes_servers_with_functions(version):
    server.check_server({"redis_version": version, "role": "master"}, GOOD)


@pytest.mark.parametrize("version", ["6.2.14", "5.0", "0"])
def test_refuses_servers_without_functions(version):
    with pytest.raises(Misconfigured, match=f"Redis {version}") as refused:
        server.check_server({"redis_version": version, "role": "master"}, GOOD)
    assert "Valkey" in refused.value.suggestions[0]


@pytest.mark.parametrize("name", server.required_settings())
def test_names_a_setting_that_is_wrong_or_unknown(name):
    info = {"redis_version": "7.2.4", "role": "master"}
    for config in ({**GOOD, name: "other"}, {k: v for k, v in GOOD.items() if k != name}):
        with pytest.raises(Misconfigured, match=name) as refused:
            server.check_server(info, config)
        assert f"--{name} {GOOD[name]}" in " ".join(refused.value.suggestions)
