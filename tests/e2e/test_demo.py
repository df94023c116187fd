"""`frenzy demo` as a program sees it, and that nothing is left however it ends."""

import json
import signal
import sys
import time

import pytest
from tests.support.installation import installation

from frenzy.cli import main

__all__ = ["installation"]

KEYS = {
    *("name", "id", "state", "reason", "kind", "devices", "nodes", "zero_stage"),
    *("predicted_peak_bytes", "observed_peak_bytes", "loss_first", "loss_last"),
    *("tokens_per_second", "predicted_tokens_per_second"),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_jobs_tell_their_story(installation):
    done = installation.run("demo", "-o", "json", timeout=280)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.keys() == {"jobs", "wall_s"}
    assert all(job.keys() == KEYS for job in result["jobs"])
    jobs = {job["name"]: job for job in result["jobs"]}
    refused = jobs.pop("impossible")
    assert (refused["state"], refused["id"]) == ("REFUSED", None)
    assert "resources.kinds" in done.stderr
    for name, job in jobs.items():
        assert job["state"] == "SUCCEEDED", (name, job)
        assert job["loss_last"] < job["loss_first"] - 0.2, name
        error = abs(job["predicted_peak_bytes"] / job["observed_peak_bytes"] - 1)
        assert error < 0.10, (name, job)
        assert job["tokens_per_second"] > 0
    assert jobs["small"]["kind"] == "emulated-rtx2080ti"
    assert jobs["small"]["observed_peak_bytes"] <= 96 * 2**20
    assert jobs["large"]["observed_peak_bytes"] > 96 * 2**20
    assert len(jobs["two-nodes"]["nodes"]) == 2
    assert result["wall_s"] < 240
    assert installation.nothing_left() == {}
    assert list((installation.home / "tmp").iterdir()) == []
    assert not installation.root.exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended_early(installation, number):
    process = installation.start("demo", "-o", "json")
    try:
        for line in process.stderr:
            if "RUNNING" in line:
                break
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    expected = -number if number == signal.SIGKILL else 128 + number
    assert process.returncode == expected
    left = installation.nothing_left(within_s=40.0)
    if left:
        sys.stderr.write(installation.logs())
    assert left == {}
    if number != signal.SIGKILL:
        assert list((installation.home / "tmp").iterdir()) == []


@pytest.mark.timeout(120)
def test_a_second_ctrl_c_waits_for_the_cleaning(installation):
    process = installation.start("demo", "-o", "json")
    try:
        for line in process.stderr:
            if "starting services" in line:
                break
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if "stopping everything" in line:
                break
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.count("still stopping") == 1
    assert installation.nothing_left() == {}
    assert list((installation.home / "tmp").iterdir()) == []


def test_ctrl_c_while_a_command_is_imported_is_quiet(monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("frenzy.cli.app.run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
