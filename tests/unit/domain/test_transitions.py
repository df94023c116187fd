"""The table of a job's life: what the rest of the system takes for granted about it."""

import pytest

from frenzy_shared.domain.job import PLACED, TERMINAL, JobState
from frenzy_shared.domain.transitions import (
    CANCEL_REASONS,
    PROGRESS_EVENTS,
    REQUEUE_REASONS,
    TRANSITIONS,
    sources_of,
    transition,
)


def test_every_pair_of_states_has_at_most_one_arrow():
    ends = [(arrow.source, arrow.target) for arrow in TRANSITIONS]
    assert len(ends) == len(set(ends))


def test_nothing_leaves_a_terminal_state():
    assert not [arrow for arrow in TRANSITIONS if arrow.source in TERMINAL]


@pytest.mark.parametrize("state", JobState)
def test_every_state_is_reached_from_submitted(state):
    assert state in reachable(JobState.SUBMITTED)


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL))
def test_every_live_state_can_end_in_every_way(state):
    assert reachable(state) >= TERMINAL


def test_placed_jobs_leave_only_through_stopping():
    """Devices are given up in STOPPING: no other placed state may lead out."""
    leaving = [
        arrow for arrow in TRANSITIONS if arrow.source in PLACED and arrow.target not in PLACED
    ]
    assert {arrow.source for arrow in leaving} == {JobState.STOPPING}


def test_devices_are_claimed_only_from_the_queue():
    assert sources_of(JobState.RESERVED) == {JobState.QUEUED}


def test_every_live_state_can_be_cancelled():
    for state in set(JobState) - TERMINAL - {JobState.STOPPING}:
        targets = {arrow.target for arrow in TRANSITIONS if arrow.source is state}
        assert targets & {JobState.CANCELLED, JobState.STOPPING}


def test_transition_finds_the_arrow():
    arrow = transition(JobState.QUEUED, JobState.RESERVED)
    assert (arrow.event, arrow.when) == ("placed", "all devices claimed")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (JobState.SUCCEEDED, JobState.QUEUED),
        (JobState.QUEUED, JobState.RUNNING),
        (JobState.RUNNING, JobState.SUCCEEDED),
        (JobState.QUEUED, JobState.QUEUED),
    ],
)
def test_transition_refuses_what_is_not_in_the_table(source, target):
    with pytest.raises(ValueError, match=f"{source} to {target}"):
        transition(source, target)


def test_sources_match_the_table():
    for target in JobState:
        for source in sources_of(target):
            assert transition(source, target).target is target
    assert sources_of(JobState.SUBMITTED) == {JobState.QUEUED, JobState.STOPPING}


def test_event_names_fit_subjects_and_do_not_mix():
    names = {arrow.event for arrow in TRANSITIONS}
    assert all(name.isalpha() and name.islower() for name in names | set(PROGRESS_EVENTS))
    assert not names & set(PROGRESS_EVENTS)


def test_no_reason_both_cancels_and_requeues():
    assert not CANCEL_REASONS & REQUEUE_REASONS


def reachable(start: JobState) -> set[JobState]:
    found, edge = {start}, {start}
    while edge:
        edge = {arrow.target for arrow in TRANSITIONS if arrow.source in edge} - found
        found |= edge
    return found
