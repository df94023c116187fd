"""The how-to "Run the cluster": back up, restore, reconcile, rebuild, as a user does it."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from tests.support.installation import installation, until

from frenzy import Client
from frenzy_shared.errors import SafeMode, Unauthenticated, Unavailable
from frenzy_shared.messages.projects import ProjectSettings

__all__ = ["installation"]

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto" / "run-the-cluster.md"
UP = ("up", "--port", "0", "--emulated", "node-a:emulated-small:1:96MiB:1.0")
SCRIPT = """
import frenzy_trainer as ft
ft.report(step=1, loss=1.0, tokens=64)
"""


def commands(heading, home):
    """The commands of one section, with folders of this home."""
    text = HOWTO.read_text()
    section = text[text.index(f"\n## {heading}") :].split("\n## ")[1]
    seen = []
    for line in re.findall(r"^\$ frenzy (.*)$", section, re.MULTILINE):
        words = line.partition("#")[0].replace("/backup/frenzy", str(home.home / "backup")).split()
        if words[-1] != "node-c" and words not in seen:  # every node of this home is alive
            seen.append(words)
            yield list(UP) if words == ["up"] else words


def api(home, token=None):
    """A client of what runs in this home; `frenzy up` wrote where and with which token."""
    server = tomllib.loads((home.home / "config" / "frenzy" / "config.toml").read_text())
    return Client(server["url"], token or server["token"])


def run_job(home, name):
    folder = home.home / name
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    spec = {
        "name": name,
        "entrypoint": {"script": "train.py"},
        "workdir": str(folder),
        "model": "gpt2-tiny",
        "global_batch_size": 1,
        "sequence_length": 64,
    }
    with api(home) as client:
        view = client.submit(spec).wait(timeout_s=120)
    assert (view.state, view.attempt) == ("SUCCEEDED", 1)
    return view


def limit(home, devices):
    with api(home) as client:
        client.set_project(
            "vision", ProjectSettings.model_validate({"devices": {"limit": devices}})
        )


def closed(home):
    """Tell that the store is closed, once every node has said what it runs."""

    def spoken():
        try:
            with api(home) as client:
                return not client.admin.reconcile().silent
        except Unavailable:  # no scheduler leads yet
            return False

    until(spoken, "nodes say what they run")
    with pytest.raises(SafeMode):
        limit(home, 9)


def works(home, token):
    try:
        with api(home, token) as client:
            return bool(client.version())
    except Unauthenticated:
        return False


def everything_is_back(home, views, kept, revoked):
    with api(home) as client:
        for view in views:
            now = client.job(view.id).view
            assert (now.state, now.attempt, now.version) == (view.state, 1, view.version)
        assert client.project("vision").settings.devices.limit == 4
        until(lambda: client.nodes()[0].state == "UP", "the node is back")
        assert not client.readiness().safe_mode
    assert works(home, kept)
    assert not works(home, revoked)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_backup_is_restored_and_an_empty_store_rebuilt(installation):
    home = installation
    home.run(*UP)
    limit(home, 2)
    with api(home) as client:
        revoked = client.admin.create_token(name="old", role="viewer")
    views = [run_job(home, "first")]

    for words in commands("Back up", home):
        home.run(*words)
    assert (home.home / "backup" / "backup.json").exists()

    # What the backup does not know of.
    views.append(run_job(home, "later"))
    limit(home, 4)
    with api(home) as client:
        kept = client.admin.create_token(name="new", role="viewer")
        client.admin.revoke_token(revoked.id)

    said = []
    for words in commands("Restore a backup", home):
        said.append(home.run(*words).stderr)
        if words[0] == "up":
            closed(home)
    assert "restored from a backup of" in said[-2]
    assert "SAFE MODE is over" in said[-1]
    everything_is_back(home, views, kept.token, revoked.token)

    home.run("down")
    shutil.rmtree(home.root / "valkey" / "appendonlydir")
    home.run(*UP)
    closed(home)
    assert "SAFE MODE is over" in home.run("admin", "rebuild", "--apply").stderr
    everything_is_back(home, views, kept.token, revoked.token)
    home.run("down")
