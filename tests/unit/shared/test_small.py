"""Units, settings, clock, ids, errors and the rules of delivery."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frenzy_shared import errors
from frenzy_shared.bus.delivery import matches, redelivery_delay_s
from frenzy_shared.clock import RandomIds, SystemClock
from frenzy_shared.domain.ids import is_name
from frenzy_shared.errors import FieldProblem, FrenzyError, Misconfigured
from frenzy_shared.messages import subjects
from frenzy_shared.messages.envelope import event_type, short_kind
from frenzy_shared.settings import ServiceSettings, TimingSettings, load
from frenzy_shared.units import format_bytes, parse_bytes, parse_duration_s


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10 * 1024, "10.0 KiB"),
        (1536 * 1024, "1.50 MiB"), (100 * 2**30, "100 GiB"), (5000 * 2**30, "5000 GiB"),
    ],
)  # fmt: skip
def test_bytes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("24GB", 24 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("5b", 5),
        (" 2 tb ", 2 * 10**12),
        ("1kib", 1024),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "GB", "24", "24 XB", "-1GB", "0GB", "1e999GB", "nanGB", "1..2GB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bytes(text)


@given(st.integers(1, 2**50))
def test_formatted_bytes_parse_back_closely(count: int) -> None:
    assert abs(parse_bytes(format_bytes(count)) - count) <= count * 0.01


def test_durations() -> None:
    assert [parse_duration_s(t) for t in ("90s", "30m", "12h", "7d", "1.5h")] == [
        90, 1800, 43_200, 604_800, 5400,
    ]  # fmt: skip
    for text in ("", "5", "1y", "-1s", "0m", "H"):
        with pytest.raises(ValueError):
            parse_duration_s(text)


# -- settings ---------------------------------------------------------------------------------


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRENZY_NATS_URL", "nats://t0ken@host:1")
    monkeypatch.setenv("FRENZY_HEARTBEAT_S", "0.5")
    settings = load(TimingSettings)
    assert settings.heartbeat_s == 0.5
    assert settings.nats_url.get_secret_value() == "nats://t0ken@host:1"
    assert "t0ken" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("FRENZY_METRICS_PORT", "70000"), ("FRENZY_METRICS_PORT", "x"), ("FRENZY_HEARTBEAT_S", "0"),
     ("FRENZY_HEARTBEAT_S", "nan"), ("FRENZY_LOST_AFTER_S", "-5"), ("FRENZY_LOST_AFTER_S", "1e9")],
)  # fmt: skip
def test_wrong_settings_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured, match=name):
        load(TimingSettings)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError):
        ServiceSettings().log_level = "DEBUG"  # type: ignore[misc]


# -- clock and ids ----------------------------------------------------------------------------


def test_ids_are_safe_distinct_and_ordered_by_time() -> None:
    ids = [RandomIds().new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(len(text) == 26 and is_name(text) for text in ids)
    assert [text[:10] for text in ids] == sorted(text[:10] for text in ids)


def test_the_clock_runs() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.now_ms() > 1_700_000_000_000


# -- errors -----------------------------------------------------------------------------------


def test_every_error_has_its_own_code() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, FrenzyError)
    ]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)


def test_an_error_carries_what_people_need() -> None:
    problem = FieldProblem(pointer="/a", detail="is wrong")
    error = FrenzyError("text", problems=[problem], suggestions=["do this"])
    assert (str(error), error.problems, error.suggestions) == ("text", (problem,), ("do this",))


# -- subjects and delivery --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True), ("a.b", "a.c", False), ("a.*", "a.b", True), ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True), ("a.>", "a", False), (">", "a", True), ("*", "a.b", False),
        ("a.*.c", "a.b.c", True), ("a.b", "a", False), ("a", "a.b", False),
    ],
)  # fmt: skip
def test_patterns(pattern: str, subject: str, expected: Any) -> None:
    assert matches(pattern, subject) is expected


def test_every_durable_subject_belongs_to_one_stream() -> None:
    for subject in (
        subjects.job_event("p", "placed", "j"),
        subjects.node_event("lost", "n"),
        subjects.evidence("n", "clean"),
        subjects.log("p", "j", 1, 0),
        subjects.dead_letter("S", "c"),
    ):
        assert sum(matches(config.subject, subject) for config in subjects.STREAMS) == 1
    for subject in (subjects.heartbeat("n"), subjects.desired("n"), subjects.telemetry("p", "j")):
        assert not any(matches(config.subject, subject) for config in subjects.STREAMS)


def test_filters_match_what_they_are_for() -> None:
    event = subjects.job_event("p", "submitted", "j")
    for pattern in (
        subjects.ALL_EVENTS,
        subjects.JOB_EVENTS,
        subjects.JOBS_SUBMITTED,
        subjects.job_events("p", "j"),
        subjects.job_events_of_kind("submitted"),
    ):
        assert matches(pattern, event)
    assert not matches(subjects.job_events("p", "other"), event)
    assert not matches(subjects.JOB_EVENTS, subjects.node_event("lost", "n"))
    assert matches(subjects.job_logs("p", "j"), subjects.log("p", "j", 2, 1))
    assert matches(subjects.HEARTBEATS, subjects.heartbeat("n"))


def test_event_types_and_kinds_agree() -> None:
    assert event_type("job", "placed") == "dev.frenzy.job.placed.v1"
    assert short_kind(event_type("job", "placed")) == "placed"


def test_redeliveries_wait_longer_and_longer() -> None:
    delays = [redelivery_delay_s(count) for count in range(1, 11)]
    assert delays == sorted(delays)
    assert delays[0] < 1 < delays[-1]
