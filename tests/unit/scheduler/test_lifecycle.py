"""The state machine, arrow by arrow: one job on two nodes, "a" (rank 0) and "b" (ranks 1, 2)."""

from dataclasses import replace

import pytest
from tests.support.scheduling import job, placement

from frenzy_scheduler.core.endings import backoff_s
from frenzy_scheduler.core.facts import (
    Checkpointed,
    Clean,
    Exited,
    NodeFenced,
    NodeGone,
    Prepared,
    Progressed,
    Refused,
    Started,
    TimerDue,
    TimerKind,
)
from frenzy_scheduler.core.lifecycle import react, reserve, settle
from frenzy_scheduler.core.steps import Rules
from frenzy_shared.domain.continuation import PlanShape
from frenzy_shared.domain.job import JobState, RankOutcome, StopReason
from frenzy_shared.domain.plan import Precision
from frenzy_shared.state.port import Release, Timer

RULES = Rules(max_retries=2, max_oom_retries=1)
NOW = 1_000_000
GANG = placement("a/rtx-0", "b/rtx-0", "b/rtx-1")
DONE = StopReason.COMPLETED
SHAPE = PlanShape(zero_stage=1, ranks=3, precision=Precision.BF16)


def placed(state: JobState, **fields):
    return job(state, **{"attempt": 1, "placement": GANG, "owned_devices": 3, **fields})


def reserved(**fields):
    return placed(JobState.RESERVED, **fields)


def starting(state=JobState.STARTING, **fields):
    return placed(state, **{"prepared": ("a", "b"), "rendezvous": "h:1", **fields})


def running(**fields):
    fields = {"started": ("a", "b"), "started_ms": 500_000, **fields}
    return starting(JobState.RUNNING, **fields)


def stopping(reason: StopReason = StopReason.USER_CODE_ERROR, **fields):
    return placed(JobState.STOPPING, **{"reason": reason.value, "message": "it broke", **fields})


def ended(*pairs, message=""):
    return tuple(
        RankOutcome(rank=rank, exit_code=0 if reason is DONE else 1, reason=reason, message=message)
        for rank, reason in pairs
    )


def after(record, *facts, rules=RULES, now=NOW):
    """Apply facts of attempt 1 in order, taking every arrow; return the last step that changed."""
    step = None
    for fact in facts:
        found = react(record, 1, fact, rules, now)
        if found is not None:
            step, record = found, found.after
    return step


def kinds(step):
    return [event.kind for event in step.events]


def test_reserving_claims_every_device_for_a_new_attempt():
    record = job(attempt=1, prepared=("x",), outcomes=ended((0, DONE)), last_step=9, retries=1)
    step = reserve(record, GANG, RULES, shape=SHAPE, now_ms=NOW)
    assert step.after.state is JobState.RESERVED
    assert (step.after.attempt, step.after.prepared, step.after.outcomes) == (2, (), ())
    assert (step.after.last_step, step.after.retries, step.after.owned_devices) == (None, 1, 3)
    claims = [(c.node, c.device) for c in step.claims]
    assert claims == [("a", "rtx-0"), ("b", "rtx-0"), ("b", "rtx-1")]
    assert step.set_timers == (Timer(id="prepare:job-1:2", after_s=120.0),)
    assert step.clear_timers == ("backoff:job-1:1",)
    assert kinds(step) == ["placed"]
    assert step.after.message == "3 x rtx on a, b, plan p1"
    assert (step.after.placed_ms, step.after.shape) == (NOW, SHAPE)


def test_one_prepared_node_is_recorded_and_the_last_one_starts_the_job():
    step = after(reserved(), Prepared(node="a", rendezvous="127.0.1.1:29500"))
    assert (step.after.state, step.after.prepared) == (JobState.RESERVED, ("a",))
    step = after(step.after, Prepared(node="b"))
    assert (step.after.state, step.after.rendezvous) == (JobState.STARTING, "127.0.1.1:29500")
    assert step.clear_timers == ("prepare:job-1:1",)
    assert step.set_timers == (Timer(id="go:job-1:1", after_s=60.0),)


def test_every_started_node_makes_it_run():
    step = after(starting(refusals=3), Started(node="b"), Started(node="a"))
    assert (step.after.state, step.after.started_ms, step.after.refusals) == (
        JobState.RUNNING,
        NOW,
        0,
    )
    assert step.set_timers == (Timer(id="first_report:job-1:1", after_s=1800.0),)


def test_a_script_that_reports_nothing_has_no_report_timer():
    rules = replace(RULES, reports=False)
    assert after(starting(), Started(node="a"), Started(node="b"), rules=rules).set_timers == ()


def test_max_duration_counts_from_the_first_start():
    rules = replace(RULES, max_duration_s=600.0, reports=False)
    record = starting(started_ms=NOW - 100_000)
    step = after(record, Started(node="a"), Started(node="b"), rules=rules)
    assert step.set_timers == (Timer(id="max_duration:job-1:1", after_s=500.0),)
    assert step.after.started_ms == NOW - 100_000


def test_the_first_progress_clears_the_report_timer_and_old_progress_is_ignored():
    step = after(running(), Progressed(step=5, loss=2.5))
    assert step.clear_timers == ("first_report:job-1:1",)
    assert (step.after.last_step, step.after.last_loss) == (5, 2.5)
    assert kinds(step) == ["progressed"]
    assert react(step.after, 1, Progressed(step=5, loss=9.9), RULES, NOW) is None
    assert after(step.after, Progressed(step=6)).after.last_loss == 2.5


def test_the_checkpoint_pointer_only_moves_forward_and_even_after_the_attempt():
    step = after(running(), Checkpointed(step=10))
    assert (step.after.checkpoint_step, kinds(step)) == (10, ["checkpointed"])
    assert react(step.after, 1, Checkpointed(step=10), RULES, NOW) is None
    requeued = job(JobState.QUEUED, attempt=1, checkpoint_step=10)
    assert after(requeued, Checkpointed(step=20)).after.checkpoint_step == 20


def test_success_needs_every_node_to_exit_and_to_be_clean():
    step = after(running(), Exited(node="a", outcomes=ended((0, DONE))))
    assert step.after.state is JobState.RUNNING
    step = after(step.after, Exited(node="b", outcomes=ended((1, DONE), (2, DONE))))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "Completed")
    step = after(step.after, Clean(node="b"))
    assert (step.after.state, step.after.owned_devices) == (JobState.STOPPING, 1)
    assert step.releases == (
        Release(node="b", device="rtx-0", token="job-1#1"),
        Release(node="b", device="rtx-1", token="job-1#1"),
    )
    step = after(step.after, Clean(node="a"))
    assert (step.after.state, step.after.owned_devices) == (JobState.SUCCEEDED, 0)
    assert (step.after.finished_ms, len(step.after.outcomes)) == (NOW, 3)
    assert "3 ranks completed on a, b" in step.after.message
    assert step.after.placement == GANG


def test_a_short_job_may_exit_before_its_start_is_known():
    """Replicas may handle started and exited in either order."""
    step = after(
        starting(),
        Exited(node="a", outcomes=ended((0, DONE))),
        Exited(node="b", outcomes=ended((1, DONE), (2, DONE))),
    )
    assert step.after.state is JobState.RUNNING
    step = settle(step.after, RULES, NOW)
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "Completed")


def test_the_first_failure_stops_the_gang_and_names_the_rank():
    failed = Exited(node="b", outcomes=ended((1, DONE), (2, StopReason.USER_CODE_ERROR)))
    step = after(running(), failed)
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "UserCodeError")
    assert step.after.message == "rank 2 on b: ended with exit code 1"
    assert step.set_timers == (Timer(id="stop:job-1:1", after_s=60.0),)
    assert set(step.clear_timers) == {
        "prepare:job-1:1",
        "go:job-1:1",
        "first_report:job-1:1",
        "max_duration:job-1:1",
    }


def test_the_cause_of_a_gangs_end_is_out_of_memory_not_its_echo():
    echo = Exited(node="a", outcomes=ended((0, StopReason.COMMUNICATION_ERROR)))
    cause = Exited(
        node="b",
        outcomes=ended((1, StopReason.CUDA_OUT_OF_MEMORY), (2, StopReason.COMMUNICATION_ERROR)),
    )
    for order in ((echo, cause), (cause, echo)):
        step = after(running(), *order)
        assert (step.after.state, step.after.reason) == (JobState.STOPPING, "CudaOutOfMemory")
        assert step.after.message.startswith("rank 1 on b")


def test_what_a_person_decided_is_not_overruled_by_how_ranks_end():
    record = stopping(StopReason.CANCELLED_BY_USER)
    step = after(record, Exited(node="a", outcomes=ended((0, StopReason.CUDA_OUT_OF_MEMORY))))
    assert step.after.reason == "ByUser"
    step = after(step.after, Clean(node="a"), Clean(node="b"))
    assert step.after.state is JobState.CANCELLED


def test_ranks_that_a_node_does_not_mention_did_not_complete():
    step = after(running(), Exited(node="b", outcomes=ended((1, DONE))))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "InternalError")
    assert step.after.message == "rank 2 on b: b did not say how it ended"


ENDINGS = [
    (StopReason.COMPLETED, {}, JobState.SUCCEEDED, {}),
    (StopReason.CANCELLED_BY_USER, {}, JobState.CANCELLED, {}),
    (StopReason.CANCELLED_BY_POLICY, {}, JobState.CANCELLED, {}),
    (StopReason.SUPERSEDED, {}, JobState.CANCELLED, {}),
    (StopReason.PREEMPTED, {"retries": 2}, JobState.QUEUED, {"retries": 2, "not_before_ms": 0}),
    (StopReason.DRAINED, {}, JobState.QUEUED, {"retries": 0, "not_before_ms": 0}),
    (StopReason.NODE_LOST, {}, JobState.QUEUED, {"retries": 0, "not_before_ms": 0}),
    (
        StopReason.LAUNCH_REFUSED,
        {"refusals": 2, "retries": 2},
        JobState.QUEUED,
        {"refusals": 3, "retries": 2, "not_before_ms": NOW + 40_000},
    ),
    (StopReason.START_TIMEOUT, {}, JobState.QUEUED, {"retries": 1, "not_before_ms": NOW + 10_000}),
    (StopReason.START_TIMEOUT, {"retries": 2}, JobState.FAILED, {}),
    (
        StopReason.USER_CODE_ERROR,
        {"retries": 1},
        JobState.QUEUED,
        {"retries": 2, "not_before_ms": NOW + 20_000},
    ),
    (StopReason.USER_CODE_ERROR, {"retries": 2}, JobState.FAILED, {}),
    (StopReason.HOST_OUT_OF_MEMORY, {}, JobState.QUEUED, {"retries": 1}),
    (StopReason.COMMUNICATION_ERROR, {}, JobState.QUEUED, {"retries": 1}),
    (StopReason.CHECKPOINT_ERROR, {}, JobState.QUEUED, {"retries": 1}),
    (StopReason.INTERNAL_ERROR, {"retries": 2}, JobState.FAILED, {}),
    (StopReason.DATA_ERROR, {}, JobState.FAILED, {}),
    (StopReason.DEADLINE_EXCEEDED, {}, JobState.FAILED, {}),
    (StopReason.LOG_QUOTA_EXCEEDED, {}, JobState.FAILED, {}),
    (StopReason.DISK_QUOTA_EXCEEDED, {}, JobState.FAILED, {}),
    (StopReason.NO_FEASIBLE_PLAN, {}, JobState.FAILED, {}),
    (StopReason.CUDA_OUT_OF_MEMORY, {}, JobState.SUBMITTED, {"oom_retries": 1, "retries": 0}),
    (StopReason.CUDA_OUT_OF_MEMORY, {"oom_retries": 1}, JobState.FAILED, {}),
]


@pytest.mark.parametrize(("reason", "fields", "state", "expected"), ENDINGS)
def test_where_a_stopped_job_goes(reason, fields, state, expected):
    record = stopping(reason, clean=("a",), owned_devices=2, **fields)
    step = after(record, Clean(node="b"))
    assert step.after.state is state
    assert {name: getattr(step.after, name) for name in expected} == expected
    assert step.after.owned_devices == 0
    assert (step.after.placement is None) == (state is JobState.QUEUED)
    assert "stop:job-1:1" in step.clear_timers


def test_every_stop_reason_has_an_ending():
    assert {reason for reason, *_ in ENDINGS} == set(StopReason)


def test_out_of_memory_is_an_event_of_its_own_with_the_plan_and_the_peak():
    outcome = replace(ended((2, StopReason.CUDA_OUT_OF_MEMORY))[0], peak_allocated_bytes=2**30)
    record = stopping(
        StopReason.CUDA_OUT_OF_MEMORY, clean=("a",), owned_devices=2, outcomes=(outcome,)
    )
    step = after(record, Clean(node="b"))
    assert kinds(step) == ["oom", "replanned"]
    assert step.events[0].data["plan"] == "p1"
    assert step.events[0].data["peak_allocated_bytes"] == 2**30
    assert step.set_timers == (Timer(id="replan:job-1:1", after_s=30.0),)
    assert step.after.outcomes == (outcome,)
    exhausted = after(replace(record, oom_retries=1), Clean(node="b"))
    assert kinds(exhausted) == ["oom", "failed"]
    assert exhausted.after.message.endswith("(1 of 1 new plans tried)")


def test_messages_say_which_retry_comes_when():
    step = after(stopping(clean=("a",), owned_devices=2), Clean(node="b"))
    assert step.after.message == "attempt 1 ended: it broke; retry 1 of 2 in 10 s"
    step = after(stopping(clean=("a",), owned_devices=2, retries=2), Clean(node="b"))
    assert step.after.message == "it broke (2 of 2 retries used)"


def test_backoff_doubles_to_its_limit():
    waits = [backoff_s(failures, RULES) for failures in (0, 1, 2, 5, 6, 7, 10**6)]
    assert waits == [10, 20, 40, 320, 600, 600, 600]


@pytest.mark.parametrize(
    ("record", "kind", "reason", "message"),
    [
        (reserved(prepared=("a",)), TimerKind.PREPARE, "StartTimeout", "b had not prepared"),
        (starting(started=("b",)), TimerKind.GO, "StartTimeout", "a had not started"),
        (running(), TimerKind.FIRST_REPORT, "StartTimeout", "no training step"),
        (running(), TimerKind.MAX_DURATION, "DeadlineExceeded", "max_duration"),
        (starting(), TimerKind.MAX_DURATION, "DeadlineExceeded", "max_duration"),
    ],
)
def test_what_comes_too_late_stops_the_job(record, kind, reason, message):
    step = after(record, TimerDue(kind=kind))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, reason)
    assert message in step.after.message


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (starting(), TimerKind.PREPARE),
        (running(), TimerKind.GO),
        (running(last_step=1), TimerKind.FIRST_REPORT),
        (running(), TimerKind.STOP),
        (stopping(), TimerKind.MAX_DURATION),
        (job(JobState.QUEUED, attempt=1), TimerKind.BACKOFF),
        (job(JobState.QUEUED, attempt=1), TimerKind.REPLAN),
    ],
)
def test_a_timer_that_no_longer_matters_changes_nothing(record, kind):
    assert react(record, 1, TimerDue(kind=kind), RULES, NOW) is None


def test_the_stop_timer_repeats_until_every_node_is_clean():
    step = after(stopping(), TimerDue(kind=TimerKind.STOP))
    assert step.before == step.after
    assert step.set_timers == (Timer(id="stop:job-1:1", after_s=60.0),)


def test_a_job_that_nobody_plans_again_is_announced_again():
    step = after(job(JobState.SUBMITTED, attempt=1), TimerDue(kind=TimerKind.REPLAN))
    assert kinds(step) == ["replanned"]
    assert step.set_timers == (Timer(id="replan:job-1:1", after_s=30.0),)


@pytest.mark.parametrize("record", [reserved(), starting(), starting(started=("a",))])
def test_a_refusal_stops_the_launch_and_counts_no_retry(record):
    step = after(record, Refused(node="b", reason="DeviceBusy", message="pid 7 uses rtx-1"))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "LaunchRefused")
    assert step.after.message == "b refused to start: pid 7 uses rtx-1"


def test_a_node_that_started_or_ended_its_ranks_cannot_refuse_them():
    """An agent answers a late GO for an attempt that is over there with a refusal."""
    refusal = Refused(node="b", reason="", message="it was stopped here before")
    assert react(running(), 1, refusal, RULES, NOW) is None
    assert react(starting(exited=("b",)), 1, refusal, RULES, NOW) is None


def test_missing_data_is_refused_for_good():
    step = after(reserved(), Refused(node="a", reason="DataError", message="no /data/x"))
    assert step.after.reason == "DataError"


def test_clean_before_prepared_means_refused():
    step = after(reserved(), Clean(node="a"))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "LaunchRefused")
    assert step.after.owned_devices == 2


def test_clean_before_exited_waits_for_how_the_ranks_ended():
    step = after(running(), Clean(node="b"))
    assert (step.after.state, step.after.owned_devices) == (JobState.RUNNING, 1)
    assert step.set_timers == (Timer(id="stop:job-1:1", after_s=180.0),)
    late = after(step.after, Exited(node="b", outcomes=ended((1, DONE), (2, DONE))))
    assert late.after.state is JobState.RUNNING
    never = after(step.after, TimerDue(kind=TimerKind.STOP))
    assert (never.after.state, never.after.reason) == (JobState.STOPPING, "InternalError")


@pytest.mark.parametrize("record", [reserved(), starting(), running()])
def test_a_lost_node_stops_its_jobs_and_keeps_the_devices_until_it_is_fenced(record):
    step = after(record, NodeGone(node="b", why="node b is lost"))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "NodeLost")
    assert step.releases == ()
    step = after(step.after, Clean(node="a"))
    assert step.after.state is JobState.STOPPING
    step = after(step.after, NodeFenced(node="b"))
    assert (step.after.state, step.after.retries) == (JobState.QUEUED, 0)
    assert [release.to for release in step.releases] == ["!quarantine:lost job-1#1"] * 2


def test_a_node_lost_after_its_ranks_completed_does_not_undo_their_work():
    record = after(running(), Exited(node="b", outcomes=ended((1, DONE), (2, DONE)))).after
    assert react(record, 1, NodeGone(node="b", why="lost"), RULES, NOW) is None
    step = after(record, NodeFenced(node="b"), Exited(node="a", outcomes=ended((0, DONE))))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "Completed")
    assert after(step.after, Clean(node="a")).after.state is JobState.SUCCEEDED


def test_a_fence_alone_is_enough_when_the_loss_was_missed():
    step = after(running(), NodeFenced(node="b"))
    assert (step.after.state, step.after.reason) == (JobState.STOPPING, "NodeLost")


@pytest.mark.parametrize(
    "fact", [Prepared(node="a"), Started(node="a"), Clean(node="c"), NodeGone(node="c", why="")]
)
def test_facts_of_other_attempts_states_and_nodes_change_nothing(fact):
    assert react(running(), 2, fact, RULES, NOW) is None
    assert react(running(attempt=2), 1, fact, RULES, NOW) is None
    assert react(running(), 1, fact, RULES, NOW) is None
    assert react(placed(JobState.SUCCEEDED), 1, fact, RULES, NOW) is None
    assert react(job(JobState.QUEUED, attempt=1), 1, fact, RULES, NOW) is None
