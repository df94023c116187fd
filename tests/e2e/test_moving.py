"""A job that trains for real gets its next ranks ready on idle devices before it lets go of its own."""

from statistics import mean

import pytest
from tests.support.installation import installation, until
from tests.support.moving import gaps, steps, submit, system, view

__all__ = ["installation"]

SLOW, FAST = "emulated-rtx2080ti", "emulated-a100-40"
EMULATED = f"node-a:{SLOW}:1:256MiB:0.5;node-b:{FAST}:2:256MiB:1.0"
FEW = 5


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_job_grows_onto_idle_devices_while_it_trains(installation):
    """From one device to two, through another ZeRO stage, and no step is lost or repeated."""
    home = installation
    with system(home, EMULATED) as api:
        home.run("nodes", "drain", "node-b")
        job = submit(home, "grows", kinds=[SLOW, FAST], max_steps=100_000, global_batch_size=8)
        until(lambda: view(api, job).get("last_step"), "it trains", 120)
        before = view(api, job)
        home.run("nodes", "undrain", "node-b")
        until(lambda: "gets ready on 2 x" in view(api, job)["message"], "it gets ready", 60)
        since = steps(home, job)[-1].step
        until(lambda: len(_of(steps(home, job), 2)) > FEW, "it goes on", 240)
        after = view(api, job)
        home.run("cancel", job)
        until(lambda: view(api, job)["state"] == "CANCELLED", "its end", 60)
        told = [event["type"].split(".")[3] for event in home.json("events", job)]
        nodes = home.json("nodes")
    trained = steps(home, job)
    assert (before["kind"], after["kind"]) == (SLOW, FAST)
    assert after["plan"]["device_count"] == 2
    assert (after["attempt"], after["preemptions"], after["retries"]) == (2, 1, 0)
    assert [step.step for step in trained] == list(range(1, len(trained) + 1))
    first, second = _of(trained, 1), _of(trained, 2)
    assert first[-1].step > since + FEW  # it trained while it got ready
    fresh, last, next_ = first[0].loss, first[-FEW:], second[:FEW]
    assert mean(s.loss for s in next_) < mean(s.loss for s in last) + 0.1 * fresh
    assert "requeued" not in told  # it never stood in the queue
    assert told.index("moving") < told.index("preempted")
    assert len(gaps(home, job)) == 1
    assert len(nodes) == 2


def _of(trained, attempt):
    return [step for step in trained if step.attempt == attempt]
