"""`frenzy --help` must stay fast: what it imports is what it costs."""

import json
import subprocess
import sys

_CODE = """
import json, sys
from frenzy.cli.app import run
code = run(sys.argv[1:])
sys.stderr.write(json.dumps([code, sorted(m.partition('.')[0] for m in sys.modules)]))
"""


def imported(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, done.stdout, set(modules)


def test_help_imports_nothing_heavy():
    code, out, modules = imported("--help")
    assert code == 0
    assert "submit" in out
    assert "doctor" in out
    heavy = {"rich", "pydantic", "httpx", "yaml", "asyncio", "torch", "nats", "redis", "fastapi"}
    assert modules & heavy == set()


def test_help_of_a_command_imports_no_server_package():
    code, out, modules = imported("submit", "--help")
    assert code == 0
    assert "--dry-run" in out
    assert modules & {"torch", "nats", "redis", "fastapi", "pydantic_settings", "numpy"} == set()


def test_help_of_an_estimate_works_in_the_bare_client():
    code, out, modules = imported("estimate", "--help")
    assert code == 0
    assert "--micro-batch" in out
    assert "numpy" not in modules
