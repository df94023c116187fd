"""Settings: defaults, and errors that name the variable and the remedy."""

import pytest

from frenzy_orchestrator.app import exclusive
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_shared.errors import Misconfigured
from frenzy_shared.settings import load


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, "FRENZY_NODE"),
        ({"FRENZY_NODE": "Node A"}, "FRENZY_NODE"),
        ({"FRENZY_ADDRESS": "somewhere"}, "FRENZY_ADDRESS"),
        ({"FRENZY_RENDEZVOUS_PORTS": "9"}, "FRENZY_RENDEZVOUS_PORTS"),
        ({"FRENZY_RENDEZVOUS_PORTS": "30000-20000"}, "FRENZY_RENDEZVOUS_PORTS"),
        ({"FRENZY_DATA_DIR": "relative"}, "FRENZY_DATA_DIR"),
        ({"FRENZY_FENCE_AFTER_S": "6"}, "FRENZY_HEARTBEAT_S"),
        ({"FRENZY_LOG_QUOTA_BYTES": "-1"}, "FRENZY_LOG_QUOTA_BYTES"),
        ({"FRENZY_JOB_USERS": "0-99"}, "FRENZY_JOB_USERS"),
        ({"FRENZY_JOB_USERS": "3000-2000"}, "FRENZY_JOB_USERS"),
        ({"FRENZY_JOB_USERS": "Some Body"}, "FRENZY_JOB_USERS"),
        ({"FRENZY_JOB_PROCESSES": "-1"}, "FRENZY_JOB_PROCESSES"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch, variables, named):
    if variables:
        monkeypatch.setenv("FRENZY_NODE", "node-a")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured) as caught:
        load(OrchestratorSettings)
    assert named in caught.value.message


def test_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("FRENZY_NODE", "node-a")
    monkeypatch.setenv("FRENZY_DATA_DIR", str(tmp_path))
    settings = load(OrchestratorSettings)
    assert settings.checkpoints == tmp_path / "checkpoints"
    assert settings.blob_location == str(tmp_path / "blobs")
    assert 20_000 in settings.ports


def test_one_agent_per_folder(tmp_path):
    with (
        exclusive(tmp_path),
        pytest.raises(Misconfigured, match="another agent"),
        exclusive(tmp_path),
    ):
        pass
    with exclusive(tmp_path):
        pass


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="FRENZY_DATA_DIR"), exclusive(tmp_path / "file" / "x"):
        pass
