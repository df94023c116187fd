"""Arrays on the command line, against a scripted server."""

import json

import pytest
from tests.support.api import SPEC, node_list, ok, plan, plans

from frenzy_shared.messages.http import ArrayView

ARRAY = ArrayView(id="arr1", jobs=("job1", "job2"), created=True)


@pytest.fixture
def sweep(cli, tmp_path):
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps({**SPEC, "array": {"values": [{"seed": 1}, {"seed": 2}]}}))
    cli.api.on("POST", "/plans", ok(plans(plan()))).on("GET", "/nodes", ok(node_list()))
    cli.api.on("POST", "/arrays", ok(ARRAY, 201))
    return str(file)


def test_submitting_an_array_writes_its_jobs_and_says_how_to_find_them(cli, sweep):
    result = cli("submit", "-f", sweep, "--idempotency-key", "k", "--project", "vision")
    assert result.code == 0
    assert result.out == "job1\njob2\n"
    assert "array arr1: 2 jobs; frenzy list --label array=arr1" in result.err
    (request,) = cli.api.sent("POST", "/arrays")
    assert request.headers["idempotency-key"] == "k"
    assert request.url.params["project"] == "vision"
    assert json.loads(request.content)["array"] == {"values": [{"seed": 1}, {"seed": 2}]}
    assert not cli.api.sent("POST", "/jobs")


def test_a_priority_on_the_command_line_replaces_the_files(cli, sweep):
    assert cli("submit", "-f", sweep, "--priority", "90").code == 0
    (request,) = cli.api.sent("POST", "/arrays")
    assert json.loads(request.content)["priority"] == 90
    assert cli("submit", "-f", sweep, "--priority", "101").code == 2


def test_an_array_as_data(cli, sweep):
    assert json.loads(cli("submit", "-f", sweep, "-o", "json").out) == ARRAY.model_dump(mode="json")


def test_cancelling_an_array_writes_what_was_cancelled(cli):
    cli.api.on("POST", "/arrays/arr1:cancel", ok(ARRAY))
    assert cli("cancel", "--array", "arr1").out == "job1\njob2\n"
