"""Why each rank ended, from codes, signals, reports and what the shim saw."""

import pytest

from frenzy_orchestrator.core.exits import (
    EndedBy,
    Ending,
    RankExit,
    RankReport,
    blame_disk,
    judge,
    may_be_disk,
    root_cause,
)
from frenzy_shared.domain.job import StopReason


def outcome(exit_, ended_by=EndedBy.RANK_FAILED, report=None, **fields):
    ending = Ending(ended_by=ended_by, ranks=(exit_,), **fields)
    return judge(ending, {exit_.rank: report} if report else {})[0]


def rank(code, number=0, *, signalled=False, at=1.0):
    return RankExit(rank=number, exit_code=code, signalled=signalled, ended_at=at)


@pytest.mark.parametrize(
    ("code", "signalled", "ended_by", "stop", "expected"),
    [
        (0, False, EndedBy.COMPLETED, None, StopReason.COMPLETED),
        (0, True, EndedBy.STOPPED, StopReason.CANCELLED_BY_USER, StopReason.COMPLETED),
        (1, False, EndedBy.RANK_FAILED, None, StopReason.USER_CODE_ERROR),
        (-11, False, EndedBy.RANK_FAILED, None, StopReason.USER_CODE_ERROR),
        (-9, False, EndedBy.RANK_FAILED, None, StopReason.HOST_OUT_OF_MEMORY),
        (137, False, EndedBy.RANK_FAILED, None, StopReason.HOST_OUT_OF_MEMORY),
        (143, True, EndedBy.STOPPED, StopReason.PREEMPTED, StopReason.PREEMPTED),
        (-15, True, EndedBy.STOPPED, StopReason.CANCELLED_BY_USER, StopReason.CANCELLED_BY_USER),
        (-9, True, EndedBy.STOPPED, StopReason.DEADLINE_EXCEEDED, StopReason.DEADLINE_EXCEEDED),
        (1, True, EndedBy.STOPPED, StopReason.PREEMPTED, StopReason.PREEMPTED),
        (-15, True, EndedBy.STOPPED, None, StopReason.DRAINED),
        (1, True, EndedBy.STOPPED, None, StopReason.DRAINED),
        (1, True, EndedBy.STOPPED, StopReason.DRAINED, StopReason.DRAINED),
        (1, True, EndedBy.FENCED, None, StopReason.NODE_LOST),
        (-15, True, EndedBy.FENCED, None, StopReason.NODE_LOST),
        (-15, True, EndedBy.RANK_FAILED, None, StopReason.COMMUNICATION_ERROR),
        (1, True, EndedBy.RANK_FAILED, None, StopReason.COMMUNICATION_ERROR),
        (None, False, EndedBy.SHIM_LOST, None, StopReason.INTERNAL_ERROR),
        (None, False, EndedBy.REBOOTED, None, StopReason.NODE_LOST),
    ],
)
def test_one_rank(code, signalled, ended_by, stop, expected):
    ended = outcome(rank(code, signalled=signalled), ended_by, stop_reason=stop)
    assert ended.reason is expected
    assert ended.exit_code == code


def test_only_a_report_can_say_that_a_device_ran_out_of_memory():
    report = RankReport(failure_reason="CudaOutOfMemory", failure_message="needs 2 GiB")
    ended = outcome(rank(1), report=report)
    assert (ended.reason, ended.message) == (StopReason.CUDA_OUT_OF_MEMORY, "needs 2 GiB")


def test_a_report_wins_over_a_signal_that_came_later():
    report = RankReport(failure_reason="CudaOutOfMemory", failure_message="needs 2 GiB")
    assert outcome(rank(-15, signalled=True), report=report).reason is StopReason.CUDA_OUT_OF_MEMORY


def test_a_newer_trainers_reason_keeps_its_words():
    report = RankReport(failure_reason="SolarFlare", failure_message="bits flipped")
    ended = outcome(rank(1), report=report)
    assert ended.reason is StopReason.USER_CODE_ERROR
    assert ended.message == "SolarFlare: bits flipped"


def test_the_kernels_count_is_shown():
    assert "counts 2" in outcome(rank(-9), oom_kills=2).message


def test_the_rank_that_failed_first_is_the_cause():
    ending = Ending(ended_by=EndedBy.RANK_FAILED, ranks=(rank(1, 0, at=2.0), rank(7, 1, at=1.0)))
    outcomes = judge(ending, {})
    assert [o.reason for o in outcomes] == [
        StopReason.COMMUNICATION_ERROR,
        StopReason.USER_CODE_ERROR,
    ]
    assert root_cause(outcomes).rank == 1


def test_memory_is_the_cause_of_everything_else():
    ending = Ending(ended_by=EndedBy.RANK_FAILED, ranks=(rank(1, 0, at=1.0), rank(1, 1, at=2.0)))
    outcomes = judge(ending, {1: RankReport(failure_reason="CudaOutOfMemory")})
    assert root_cause(outcomes).reason is StopReason.CUDA_OUT_OF_MEMORY


def test_nothing_failed_has_no_cause():
    assert root_cause(judge(Ending(ended_by=EndedBy.COMPLETED, ranks=(rank(0),)), {})) is None


def test_observations_travel():
    report = RankReport(
        peak_allocated_bytes=5, loss_first=4.0, loss_last=2.0, tokens_per_second=9.0, last_step=3
    )
    ended = outcome(rank(0), EndedBy.COMPLETED, report=report)
    assert (ended.peak_allocated_bytes, ended.loss_last, ended.last_step) == (5, 2.0, 3)


def test_a_full_disk_explains_failures_of_user_code_and_checkpoints_only():
    ranks = (rank(1), rank(1, 1, signalled=True), rank(0, 2))
    judged = judge(Ending(ended_by=EndedBy.RANK_FAILED, ranks=ranks), {})
    assert may_be_disk(judged)
    blamed = blame_disk(judged, "the disk of n1 is full (1 MiB free under /d)")
    assert blamed[0].reason is StopReason.CHECKPOINT_ERROR
    assert blamed[0].message == (
        "the disk of n1 is full (1 MiB free under /d): rank 0 exited with code 1"
    )
    assert blamed[1:] == judged[1:]
    assert root_cause(blamed) == blamed[0]
    assert not may_be_disk(judged[1:])
