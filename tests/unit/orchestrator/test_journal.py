"""The journal over crashes and a full disk."""

import errno
import os

import pytest
from tests.support.agent import order, script_spec

from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.journal import JOURNAL, NodeJournal
from frenzy_orchestrator.shim import files
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured, StorageFull
from frenzy_shared.messages.v1 import AttemptPhase, EvidenceKind


@pytest.fixture
def given(tmp_path):
    return order(spec=script_spec(tmp_path))


def ledger(journal):
    return EvidenceLedger("node-a", journal, lambda: 7)


def full_disk(monkeypatch, *, times=10**6):
    left = [times]
    original = os.fsync

    def fsync(descriptor):
        if left[0] > 0:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)


def test_phase_and_evidence_are_one_write(tmp_path, given):
    journal = NodeJournal(tmp_path)
    folder = journal.create(given, AttemptPhase.PREPARING)
    told = ledger(journal).make(EvidenceKind.PREPARED, given, rendezvous="h:1")
    folder.record(told, phase=AttemptPhase.PREPARED, rendezvous="h:1")
    (again,) = NodeJournal(tmp_path).attempts.values()
    assert again.journal == folder.journal
    assert again.journal.pending == (told,)
    assert again.journal.order == given


def test_numbers_grow_over_restarts_and_differ_after_a_lost_disk(tmp_path, given):
    numbers = []
    for _ in range(3):
        journal = NodeJournal(tmp_path / "a")
        numbers += [journal.next_sequence() for _ in range(300)]
    assert numbers == sorted(set(numbers))
    assert NodeJournal(tmp_path / "b").next_sequence() > 1_600_000_000_000  # milliseconds


def test_acknowledged_evidence_is_gone_for_good(tmp_path, given):
    journal = NodeJournal(tmp_path)
    folder = journal.create(given, AttemptPhase.PREPARING)
    one, two = (ledger(journal).make(EvidenceKind.PREPARED, given) for _ in range(2))
    folder.record(one)
    folder.record(two)
    folder.acknowledge(one.sequence)
    folder.acknowledge(two.sequence)
    (again,) = NodeJournal(tmp_path).attempts.values()
    assert again.journal.pending == ()


def test_only_the_newest_progress_waits(tmp_path, given):
    journal = NodeJournal(tmp_path)
    folder = journal.create(given, AttemptPhase.STARTED)
    for step in range(5):
        folder.record(ledger(journal).make(EvidenceKind.PROGRESSED, given, step=step))
    assert [entry.step for entry in folder.journal.pending] == [4]


def test_a_crash_before_the_first_record_leaves_nothing(tmp_path):
    (tmp_path / "attempts" / "j1.1").mkdir(parents=True)
    assert NodeJournal(tmp_path).attempts == {}
    assert list((tmp_path / "attempts").iterdir()) == []


def test_an_unreadable_journal_is_never_thrown_away(tmp_path, given):
    NodeJournal(tmp_path).create(given, AttemptPhase.STARTED)
    path = tmp_path / "attempts" / "j1.1" / JOURNAL
    path.write_text("{")
    with pytest.raises(Misconfigured, match="j1.1"):
        NodeJournal(tmp_path)
    assert path.exists()


def test_a_tombstone_outlives_everything(tmp_path, given):
    journal = NodeJournal(tmp_path)
    folder = journal.create(given, AttemptPhase.PREPARED)
    folder.bury(StopReason.CANCELLED_BY_USER, 1.0)
    folder.bury(StopReason.NODE_LOST, 2.0)
    (again,) = NodeJournal(tmp_path).attempts.values()
    assert again.tombstoned
    assert again.journal.stop_reason is StopReason.CANCELLED_BY_USER
    journal.forget(folder.key)
    assert NodeJournal(tmp_path).ended == {"j1": 1}


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_crash_while_burying_never_loses_why(tmp_path, given, monkeypatch, writes):
    folder = NodeJournal(tmp_path).create(given, AttemptPhase.STARTED)
    original, left = files.write_atomically, [writes]

    def crash(path, data):
        if not left[0]:
            raise KeyboardInterrupt  # what no handler in the way may swallow
        left[0] -= 1
        original(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_atomically", crash)
        if writes < 2:
            with pytest.raises(KeyboardInterrupt):
                folder.bury(StopReason.LOG_QUOTA_EXCEEDED, 2.0)
        else:
            folder.bury(StopReason.LOG_QUOTA_EXCEEDED, 2.0)
    (again,) = NodeJournal(tmp_path).attempts.values()
    assert again.tombstoned is (writes == 2)
    if again.tombstoned:
        assert again.journal.stop_reason is StopReason.LOG_QUOTA_EXCEEDED
        assert again.journal.stop_grace_s == 2.0


def test_a_full_disk_refuses_new_attempts_without_a_trace(tmp_path, given, monkeypatch):
    journal = NodeJournal(tmp_path)
    full_disk(monkeypatch)
    with pytest.raises(StorageFull, match="no space left"):
        journal.create(given, AttemptPhase.PREPARING)
    assert journal.attempts == {}
    assert list((tmp_path / "attempts").iterdir()) == []


def test_the_reserve_lets_a_running_attempt_be_recorded(tmp_path, given, monkeypatch):
    journal = NodeJournal(tmp_path)
    folder = journal.create(given, AttemptPhase.STARTED)
    full_disk(monkeypatch, times=1)
    folder.record(phase=AttemptPhase.EXITED)
    assert not (tmp_path / "reserve").exists()
    assert folder.journal.phase is AttemptPhase.EXITED
    journal.keep_reserve()
    assert (tmp_path / "reserve").stat().st_size == 4 * 1024**2


def test_a_failed_write_changes_nothing(tmp_path, given, monkeypatch):
    journal = NodeJournal(tmp_path)
    folder = journal.create(given, AttemptPhase.STARTED)
    full_disk(monkeypatch)
    with pytest.raises(StorageFull):
        folder.record(phase=AttemptPhase.EXITED)
    assert folder.journal.phase is AttemptPhase.STARTED
    (again,) = NodeJournal(tmp_path).attempts.values()
    assert again.journal.phase is AttemptPhase.STARTED
