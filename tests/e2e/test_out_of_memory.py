"""Out of memory is not the end: another plan, from the last checkpoint, with every step visible."""

import pytest
import yaml
from tests.support.installation import installation

__all__ = ["installation"]

EMULATED = "node-a:emulated-a100-40:1:256MiB:1.0;node-b:emulated-a100-80:1:512MiB:1.0"
SCRIPT = """
import os
import torch
import frenzy_trainer as ft

if os.environ["FRENZY_ATTEMPT"] == "1":
    with ft.checkpoint(3) as folder:
        (folder / "weights").write_text("three steps of work")
    torch.empty(600 * 2**20, dtype=torch.uint8)  # more than any device here has
print("resumed from", ft.resume_from().name)
ft.report(step=4, loss=1.0, tokens=64)
"""


@pytest.mark.slow
def test_a_job_that_runs_out_of_memory_gets_another_plan_and_resumes(installation):
    home = installation
    home.run("up", "--port", "0", "--emulated", EMULATED)
    try:
        job = submit(home)
        home.run("wait", job, "--timeout", "120s", timeout=150)
        view = home.json("get", job)
        kinds = [event["type"].split(".")[-2] for event in home.json("events", job)]
        places = [event["data"]["record"]["placement"] for event in placed(home, job)]
        said = home.run("logs", job).stdout
        learned = home.json("plan", str(home.home / "job.yaml"))["plans"]
    except BaseException:
        print(home.logs())
        raise
    finally:
        home.run("down")
    assert (view["state"], view["attempt"], view["retries"]) == ("SUCCEEDED", 2, 0)
    ran_out = places[0]
    assert ran_out["plan"] != places[1]["plan"], "the plan that ran out of memory came again"
    order = ["placed", "checkpointed", "oom", "replanned", "planned", "placed", "succeeded"]
    rest = iter(kinds)
    assert all(kind in rest for kind in order), kinds
    assert "resumed from step-3" in said
    taught = {plan["memory"]["runs"] for plan in learned if plan["kind"] == ran_out["kind"]}
    assert taught == {1}, "what ran out of memory teaches about plans like it"


def placed(home, job):
    return [e for e in home.json("events", job) if e["type"].endswith(".placed.v1")]


def submit(home):
    folder = home.home / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    spec = {
        "name": "greedy",
        "entrypoint": {"script": "train.py"},
        "workdir": str(folder),
        "model": "gpt2-tiny",
        "global_batch_size": 4,
        "sequence_length": 64,
        "resources": {"gpus": 1},
    }
    path = home.home / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    return home.run("submit", "-f", str(path), "-y", "-d", "-o", "name").stdout.strip()
