"""Wheel, sdist and bare client install: what users get is what the repository promises."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (
    "frenzy",
    "frenzy_shared",
    "frenzy_marp",
    "frenzy_scheduler",
    "frenzy_orchestrator",
    "frenzy_gateway",
    "frenzy_trainer",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build an sdist, and a wheel from that sdist, without the network."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_the_wheel_holds_every_package_and_its_data(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    assert "frenzy_shared/state/functions.lua" in names
    assert any(name.startswith("frenzy_shared/catalog/") and name.endswith("csv") for name in names)
    assert any(name.endswith("nats.conf") for name in names)
    assert any(name.endswith("valkey.conf") for name in names)
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in names)


def test_the_sdist_holds_licence_and_tests(built):
    names = {name.partition("/")[2] for name in tarfile.open(built[0]).getnames()}
    assert {"LICENSE", "README.md", "Makefile", "constraints.txt"} <= names


def test_the_bare_client_install_works_alone(built, tmp_path):
    """Only the base dependencies are importable: the CLI answers and the SDK imports."""
    python = bare_client(built[1], tmp_path)
    code = (
        "import importlib.util as u, frenzy, frenzy.cli\n"
        "from frenzy import Client, JobSpec\n"
        "assert not any(u.find_spec(m) for m in ('torch','fastapi','nats','redis','numpy'))\n"
        "JobSpec.model_validate({'model':'gpt2','data':'node:/x','global_batch_size':1})\n"
    )
    subprocess.run([str(python), "-I", "-c", code], check=True)
    shown = subprocess.run(
        [str(python), "-I", "-c", "from frenzy.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "submit" in shown.stdout
    for command, code, says in (
        ("up", 1, ".[all]"),
        ("demo", 1, ".[all]"),
        ("simulate", 1, ".[server]"),
        ("doctor", 1, ".[server]"),
        ("down", 0, "nothing was running"),
    ):
        done = run_bare(python, tmp_path, command)
        told = done.stdout + done.stderr
        assert done.returncode == code, (command, told)
        assert says in told, (command, told)
        assert "Traceback" not in told, command


def bare_client(wheel, folder):
    home = folder / "venv"
    venv.create(home, with_pip=False)
    target = next((home / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)
    link_distributions(base_dependencies(), target)
    return home / "bin" / "python"


def run_bare(python, home, command):
    """Run a command without the user's folders and without the test run's PATH."""
    return subprocess.run(
        [str(python), "-I", "-c", "from frenzy.cli import main; main()", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )


def base_dependencies():
    """Return the distributions that the base install needs, dependencies of dependencies too."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    wanted, todo = set(), ["pydantic", "httpx", "typer", "rich", "pyyaml"]
    while todo:
        name = todo.pop().lower()
        if name in wanted:
            continue
        wanted.add(name)
        for text in requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return wanted


def link_distributions(names, target):
    from importlib.metadata import distribution

    for name in names:
        for file in distribution(name).files or ():
            top = file.parts[0]
            source = Path(distribution(name).locate_file(top))
            if top not in {"..", "__pycache__"} and not (target / top).exists():
                (target / top).symlink_to(source)
