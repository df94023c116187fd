"""The dependency rules of CONTRIBUTING.md hold (import-linter), and imports stay light."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_import_contract_is_kept():
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def modules_after(statement):
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_the_client_is_light():
    loaded = modules_after("import frenzy; from frenzy import Client, JobSpec")
    assert loaded.isdisjoint({"torch", "fastapi", "nats", "redis", "deepspeed", "numpy"})


def test_services_do_not_import_torch():
    for package in ("marp", "scheduler", "orchestrator", "gateway"):
        loaded = modules_after(f"import frenzy_{package}.app")
        assert "torch" not in loaded, package


def test_no_source_file_is_longer_than_450_lines():
    sources = [
        path
        for top in ("sdk", "shared", "services", "trainer", "tests", "benchmarks", "docs")
        for suffix in ("*.py", "*.lua")
        for path in (ROOT / top).rglob(suffix)
    ]
    long = {str(p.relative_to(ROOT)): n for p in sources if (n := lines_of(p)) > 450}
    assert len(sources) > 50
    assert not long


def lines_of(path):
    return len(path.read_text(encoding="utf-8").splitlines())
