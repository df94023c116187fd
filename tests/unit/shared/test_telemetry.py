"""Traces, logs and metrics of a process."""

import json
import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind
from prometheus_client import Counter
from tests.support.nats import free_port

from frenzy_shared import telemetry as module
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.port import Message
from frenzy_shared.errors import Misconfigured
from frenzy_shared.messages import subjects
from frenzy_shared.settings import ServiceSettings
from frenzy_shared.telemetry import Telemetry, configure, serve_metrics, traceparent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def settings(tmp_path: Path) -> ServiceSettings:
    return ServiceSettings(trace_file=tmp_path / "traces" / "spans.jsonl")


@pytest.fixture
def telemetry(settings: ServiceSettings) -> Iterator[Telemetry]:
    made = configure("marp", settings)
    yield made
    made.close()


def spans(settings: ServiceSettings) -> list[dict[str, Any]]:
    assert settings.trace_file is not None
    return [json.loads(line) for line in settings.trace_file.read_text().splitlines()]


def test_spans_are_written_with_their_parents(
    telemetry: Telemetry, settings: ServiceSettings
) -> None:
    with telemetry.span("outer", parent=PARENT, job="j1", fast=True), telemetry.span("inner"):
        pass
    with pytest.raises(ValueError), telemetry.span("failing"):
        raise ValueError

    inner, outer, failing = spans(settings)
    assert (outer["trace_id"], outer["parent_id"]) == (PARENT[3:35], PARENT[36:52])
    assert (inner["trace_id"], inner["parent_id"]) == (PARENT[3:35], outer["span_id"])
    assert outer["attributes"] == {"job": "j1", "fast": True}
    assert (outer["service"], outer["status"], failing["status"]) == ("marp", "UNSET", "ERROR")
    assert failing["parent_id"] is None
    assert outer["start_ns"] <= inner["start_ns"] <= inner["end_ns"] <= outer["end_ns"]


def test_a_malformed_parent_is_none(telemetry: Telemetry, settings: ServiceSettings) -> None:
    with telemetry.span("outer"):
        for parent in ("", "junk", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "00-x-y-01"):
            with telemetry.span("inner", parent=parent):
                pass
    *inner, outer = spans(settings)
    assert {span["parent_id"] for span in inner} == {outer["span_id"]}


def test_traceparent_names_the_current_span(telemetry: Telemetry) -> None:
    assert traceparent() == ""
    with telemetry.span("outer", parent=PARENT):
        assert traceparent().startswith(PARENT[:35])
        assert traceparent() != PARENT


async def test_a_trace_crosses_the_bus(telemetry: Telemetry, settings: ServiceSettings) -> None:
    bus = MemoryBus()

    async def answer(message: Message) -> bytes:
        with telemetry.span("process", parent=message.headers["traceparent"]):
            return b""

    await bus.serve(subjects.MARP_PLAN, answer)
    with telemetry.span("ask", parent=PARENT):
        await bus.request(subjects.MARP_PLAN, b"", timeout_s=5)
        await bus.publish(subjects.job_event("p", "placed", "j"), b"", message_id="a")
        await bus.publish(
            subjects.job_event("p", "placed", "j"),
            b"",
            message_id="b",
            headers={"traceparent": "x"},
        )
    await bus.close()

    process, ask = spans(settings)
    assert (process["trace_id"], process["parent_id"]) == (ask["trace_id"], ask["span_id"])
    first, second = bus.broker.messages(subjects.EVENTS_STREAM)
    assert first.headers["traceparent"] == f"00-{ask['trace_id']}-{ask['span_id']}-01"
    assert second.headers["traceparent"] == "x"


def test_logs_are_json_with_the_trace(
    telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    module.configure_logging("marp", "info", "json")  # pytest replaces stderr after the fixture
    log = logging.getLogger("frenzy.test")
    log.debug("unheard")
    log.info("plain %d", 1, extra={"job_id": "j1", "path": Path("/x")})
    with telemetry.span("work", parent=PARENT):
        try:
            raise ValueError("why\nsecond line")
        except ValueError:
            log.exception("failed")

    plain, failed = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (plain["message"], plain["level"], plain["service"]) == ("plain 1", "INFO", "marp")
    assert (plain["job_id"], plain["path"], plain["logger"]) == ("j1", "/x", "frenzy.test")
    assert "trace_id" not in plain
    assert plain["time"].endswith("Z")
    assert len(plain["time"]) == len("2026-11-30T12:34:56.789Z")
    assert (failed["trace_id"], len(failed["span_id"])) == (PARENT[3:35], 16)
    assert "ValueError: why\nsecond line" in failed["exception"]


def test_logs_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    module.configure_logging("marp", "WARNING", "text")
    logging.getLogger("frenzy.test").warning("hello")
    assert capsys.readouterr().err.strip().endswith("WARNING frenzy.test: hello")


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"log_level": "loud"}, "FRENZY_LOG_LEVEL"),
        ({"log_format": "xml"}, "FRENZY_LOG_FORMAT"),
        ({"trace_file": Path("/dev/null/spans")}, "FRENZY_TRACE_FILE"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(Misconfigured, match=name):
        configure("marp", ServiceSettings(**wrong))


def test_metrics_are_served_until_closed(telemetry: Telemetry) -> None:
    Counter("frenzy_things", "Things.", registry=telemetry.registry).inc(3)
    port = serve_metrics(telemetry, ServiceSettings(metrics_port=0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        assert "frenzy_things_total 3.0" in reply.read().decode()
    other = configure("other", ServiceSettings())
    with pytest.raises(Misconfigured, match=f"127.0.0.1:{port}"):
        serve_metrics(other, ServiceSettings(metrics_port=port))
    telemetry.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
    assert serve_metrics(other, ServiceSettings(metrics_port=free_port()))
    other.close()


def test_a_request_without_a_parent_starts_its_own_trace(telemetry):
    with telemetry.span("another request's task") as outer:
        with telemetry.span("request", kind=SpanKind.SERVER) as inner:
            assert inner.get_span_context().trace_id != outer.get_span_context().trace_id
        with telemetry.span("part") as part:
            assert part.get_span_context().trace_id == outer.get_span_context().trace_id
