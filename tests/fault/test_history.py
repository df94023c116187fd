"""The checker passes a good history and catches every way in which a system could cheat."""

from dataclasses import replace

import pytest
from tests.support.history import Event, Final, History, Run, Submission, check

NODE, DEVICE = "n1", "gpu0"
STEP_MS = 1000.0


class Story:
    """A history written step by step: one second passes with every event."""

    def __init__(self):
        self.events, self.runs, self.submissions = [], [], []
        self.records = {}
        self.owners = {f"{NODE}/{DEVICE}": "", "n2/gpu0": ""}
        self.now_ms = 0.0

    def submit(self, job, key=None):
        key = key or f"key-{job}"
        self.submissions.append(Submission(key=key, body="{}", job=job))
        self.records[job] = {
            "state": "SUBMITTED",
            "version": 0,
            "attempt": 0,
            "labels": [["key", key]],
            "placement": None,
            "owned_devices": 0,
            "clean": [],
            "reason": "",
            "message": "",
        }
        return self.change(job, "submitted")

    def change(self, job, event, **patch):
        record = {**self.records[job], **patch}
        record["version"] += 1
        self.records[job] = record
        self.now_ms += STEP_MS
        self.events.append(
            Event(
                sequence=len(self.events) + 1,
                id=f"{job}:{record['version']}:0",
                entity=f"job:{job}",
                version=record["version"],
                type=event,
                time_ms=self.now_ms,
                record=record,
            )
        )
        return self

    def place(self, job, node=NODE, attempt=None):
        placement = {"devices": [{"node": node, "device": DEVICE}], "nodes": [node]}
        attempt = attempt or self.records[job]["attempt"] + 1
        fields = {"placement": placement, "attempt": attempt, "owned_devices": 1, "clean": []}
        return self.change(job, "placed", state="RESERVED", **fields)

    def run(self, job, node=NODE, *, begin=0.1, end=0.9, **fields):
        """A rank that lives within the second after the last event."""
        began, ended = (self.now_ms + part * STEP_MS for part in (begin, end))
        attempt = self.records[job]["attempt"]
        run = Run(
            **{"job": job, "attempt": attempt, "rank": 0, "node": node, "device": DEVICE}
            | {"began_s": began / 1000, "ended_s": ended / 1000}
            | {"began_ms": began, "ended_ms": ended, "finished": True}
            | fields
        )
        self.runs.append(run)
        return self

    def go(self, job, node=NODE):
        self.place(job, node).change(job, "starting", state="STARTING")
        return self.change(job, "started", state="RUNNING").run(job, node)

    def warm(self, job, node="n2"):
        """A successor on another node; its ranks wait."""
        record = self.records[job]
        placement = {"devices": [{"node": node, "device": DEVICE}], "nodes": [node]}
        successor = {"attempt": record["attempt"] + 1, "placement": placement, "clean": []}
        return self.change(job, "moving", successor=successor, owned_devices=2)

    def take_over(self, job, node="n2", owned=1):
        """The present attempt goes, and the successor on ``node`` goes on."""
        successor = self.records[job]["successor"]
        self.change(job, "stopping", state="STOPPING", reason="Preempted")
        fields = {key: successor[key] for key in ("attempt", "placement", "clean")}
        fields["owned_devices"] = owned
        self.change(job, "starting", state="STARTING", successor=None, **fields)
        return self.change(job, "started", state="RUNNING").run(job, node)

    def clean(self, job, node=NODE):
        self.change(job, "stopping", state="STOPPING", reason="Completed")
        return self.change(job, "updated", clean=[node], owned_devices=0)

    def finish(self, job, node=NODE):
        return self.clean(job, node).change(job, "succeeded", state="SUCCEEDED")

    def life(self, job, node=NODE):
        self.submit(job).change(job, "planned", state="QUEUED")
        return self.go(job, node).finish(job, node)

    def history(self):
        return History(
            submissions=tuple(self.submissions),
            events=tuple(self.events),
            runs=tuple(self.runs),
            final=Final(jobs=dict(self.records), owners=dict(self.owners)),
        )


def good():
    """Two jobs after each other on one device; the first needs two attempts."""
    story = Story().submit("a").change("a", "planned", state="QUEUED")
    story.go("a").clean("a").change("a", "requeued", state="QUEUED", placement=None)
    story.go("a", "n2").finish("a", "n2")
    return story.life("b")


def moved():
    """A job whose next attempt was ready on another node before it let go of its own."""
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a").warm("a")
    return story.take_over("a").finish("a", "n2")


def invariants(history):
    return {violation.invariant for violation in check(history)}


def test_a_good_history_passes():
    assert check(good().history()) == []


def test_a_key_that_is_sent_again_may_be_accepted_again():
    story = good()
    story.submissions.append(story.submissions[0])
    assert check(story.history()) == []


def test_two_jobs_may_run_at_once_on_two_devices():
    story = Story().submit("a").submit("b")
    story.change("a", "planned", state="QUEUED").change("b", "planned", state="QUEUED")
    story.go("a").go("b", "n2").finish("a").finish("b", "n2")
    assert check(story.history()) == []


# -- mutants: each guard taken away ---------------------------------------------------------------


def double_ownership():
    """The store's TAKEN check is gone: a second job gets the device of the first."""
    story = good().submit("c").submit("d")
    story.change("c", "planned", state="QUEUED").change("d", "planned", state="QUEUED")
    story.place("c").place("d")
    story.change("c", "starting", state="STARTING").change("c", "started", state="RUNNING")
    story.change("d", "starting", state="STARTING").change("d", "started", state="RUNNING")
    return story.finish("c").finish("d").history()


def early_release():
    """The agent says CLEAN before the rank is dead."""
    story = Story().submit("a").change("a", "planned", state="QUEUED")
    return story.go("a").run("a", begin=0.9, end=2.4, rank=1).finish("a").history()


def two_live_attempts():
    """A new attempt starts elsewhere while the old one lives."""
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a")
    story.runs[-1] = replace(story.runs[-1], ended_s=100.0)
    story.clean("a").change("a", "requeued", state="QUEUED", placement=None)
    return story.go("a", "n2").finish("a", "n2").history()


def one_device_for_two_ranks():
    """Two ranks hold one device, whatever the records say."""
    story = good()
    story.runs[-1] = replace(story.runs[-1], contested=True)
    return story.history()


def unowned_run():
    """A rank runs on a device that its attempt never owned."""
    story = good()
    story.runs[-1] = replace(story.runs[-1], node="n2")
    return story.history()


def duplicated_event_id():
    """The relay publishes without a message id: a repeated event is stored twice."""
    history = good().history()
    again = replace(history.events[3], sequence=99)
    return replace(history, events=(*history.events, again))


def broken_idempotency():
    """A retried submission makes a second job."""
    return good().submit("c", key="key-b").change("c", "cancelled", state="CANCELLED").history()


def other_body_under_one_key():
    """A key is accepted for something else."""
    story = good()
    story.submissions.append(replace(story.submissions[0], body='{"other": 1}'))
    return story.history()


def version_gap():
    """A change was never announced."""
    history = good().history()
    return replace(history, events=history.events[:4] + history.events[5:])


def illegal_arrow():
    """A state is skipped."""
    return good().submit("c").change("c", "started", state="RUNNING").history()


def attempt_without_a_claim():
    """The attempt number grows outside a placement."""
    story = Story().submit("a").change("a", "planned", state="QUEUED", attempt=1)
    return story.history()


def terminal_while_owning():
    """A job is over and still owns a device."""
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a")
    story.change("a", "stopping", state="STOPPING")
    return story.change("a", "succeeded", state="SUCCEEDED").history()


def lost_job():
    """An accepted job is gone."""
    history = good().history()
    accepted = Submission(key="key-z", body="{}", job="z")
    return replace(history, submissions=(*history.submissions, accepted))


def device_left_owned():
    """Nothing runs and a device is not free."""
    story = good()
    story.owners[f"{NODE}/{DEVICE}"] = "b#1"
    return story.history()


def process_left():
    """A process outlives its job."""
    history = good().history()
    return replace(history, final=replace(history.final, processes=("pid 1",)))


def unfinished_job():
    """A job waits for ever."""
    return good().submit("c").history()


def order_of_events():
    """The relay swaps two events of one job."""
    events = list(good().history().events)
    events[1], events[2] = replace(events[2], sequence=2), replace(events[1], sequence=3)
    return replace(good().history(), events=tuple(events))


def last_change_not_announced():
    """The stream ends before the store."""
    history = good().history()
    return replace(history, events=history.events[:-1])


def backlog():
    """Messages were given up, or never published."""
    history = good().history()
    return replace(history, final=replace(history.final, outbox_lag=1, dead_letters=1))


def unexplained_failure():
    """A job failed and nobody says why."""
    return good().submit("c").change("c", "failed", state="FAILED").history()


MUTANTS = {
    double_ownership: "I3",
    early_release: "I3",
    two_live_attempts: "I3",
    one_device_for_two_ranks: "I3",
    unowned_run: "I3",
    duplicated_event_id: "I4",
    broken_idempotency: "I2",
    other_body_under_one_key: "I2",
    version_gap: "I4",
    illegal_arrow: "I4",
    attempt_without_a_claim: "I4",
    terminal_while_owning: "I5",
    lost_job: "I1",
    device_left_owned: "I6",
    process_left: "I6",
    unfinished_job: "I6",
    order_of_events: "I7",
    last_change_not_announced: "I7",
    backlog: "I8",
    unexplained_failure: "I9",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant):
    assert MUTANTS[mutant] in invariants(mutant()), mutant.__doc__


def test_double_ownership_names_both_owners():
    found = [violation.what for violation in check(double_ownership())]
    assert f"{NODE}/{DEVICE} was given to d#1 while c#1 owned it" in found


def test_an_early_release_says_how_early():
    (found,) = [v.what for v in check(early_release()) if "after it had given up" in v.what]
    assert found == "a#1 rank 1 lived 400 ms after it had given up n1/gpu0"


def test_a_job_whose_successor_takes_over_passes():
    assert check(moved().history()) == []


def test_a_successor_that_was_dropped_leaves_its_number_unused():
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a").warm("a")
    dropped = {**story.records["a"]["successor"], "clean": ["n2"]}
    story.change("a", "updated", successor=dropped, owned_devices=1)
    story.clean("a").change("a", "requeued", state="QUEUED", placement=None)
    story.place("a", attempt=3).change("a", "starting", state="STARTING")
    story.change("a", "started", state="RUNNING").run("a").finish("a")
    assert check(story.history()) == []


def test_a_successors_device_that_another_job_gets_is_caught():
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a").warm("a")
    story.submit("b").change("b", "planned", state="QUEUED").go("b", "n2").finish("b", "n2")
    assert "I3" in invariants(story.take_over("a").finish("a", "n2").history())


def test_a_successor_that_trains_beside_the_attempt_is_caught():
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a").warm("a")
    story.run("a").run("a", "n2", attempt=2).take_over("a").finish("a", "n2")
    assert "I3" in invariants(story.history())


def test_a_take_over_under_a_number_that_is_not_the_successors_is_caught():
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a").warm("a")
    story.records["a"]["successor"]["attempt"] = 3
    number = story.records["a"]["attempt"]
    story.take_over("a")
    story.events[-2].record["attempt"] = number
    assert "I4" in invariants(story.history())


def test_a_job_that_succeeded_without_a_rank_at_its_end_is_caught():
    story = good()
    story.runs = [replace(run, finished=False) for run in story.runs]
    assert "I10" in invariants(story.history())
    assert check(replace(story.history(), silent=frozenset({"a", "b"}))) == []


def test_a_take_over_before_the_attempt_is_clean_is_caught():
    story = Story().submit("a").change("a", "planned", state="QUEUED").go("a").warm("a")
    story.take_over("a", owned=2).finish("a", "n2")
    story.submit("b").change("b", "planned", state="QUEUED").go("b").finish("b")
    assert "I3" in invariants(story.history())
