"""A cycle written down and run again decides what it decided."""

import base64
import gzip
import json
from dataclasses import replace

import pytest
from tests.support.questions import a_question, running_on
from tests.support.scheduler import Bench
from tests.support.simulation import a_plan, waiting

from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_scheduler.recorder import Recorder
from frenzy_scheduler.recording import Cycle, read, write
from frenzy_scheduler.replaying import replay
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_shared.errors import BadRequest
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import RecordReply, RecordRequest

ONE, TWO = a_plan("p1", "rtx", 1, 1.0), a_plan("p2", "rtx", 2, 0.6)
EVERY = [policy.name for policy in (*POLICIES, *PREEMPTIVE)]


def busy(policy="has"):
    queue = [
        waiting("a", 2, ONE, TWO, steps=30),
        replace(waiting("b", 3, TWO), project="p", priority=70),
    ]
    queue.append(replace(waiting("c", 4, ONE, steps=None), nodes=frozenset({"n"})))
    held = [running_on("r", 1, TWO, "n/rtx-0", "n/rtx-1", steps=5000)]
    projects = (Project(name="p", devices=DeviceQuota(nominal=1, limit=3)),)
    return replace(a_question({"n": {"rtx": 3}}, queue, held, policy=policy), projects=projects)


def recorded(question):
    cycle = Cycle.of(question, question.answer())
    return json.dumps(write([cycle]))


@pytest.mark.parametrize("policy", EVERY)
def test_a_recording_is_read_back_whole_and_decides_the_same(policy):
    question = busy(policy)
    (cycle,) = read(recorded(question))
    assert cycle.question == question
    run = replay(cycle)
    assert run.differences == []
    assert list(run.decisions.values()) == list(cycle.decisions)


def test_a_policys_constants_are_kept():
    question = replace(busy(), policy=Frenzy(min_run_factor=3.5))
    (cycle,) = read(recorded(question))
    assert cycle.question.policy == Frenzy(min_run_factor=3.5)


def test_another_policy_shows_what_it_would_have_done():
    """`has` leaves r alone; shortest remaining time first stops it for the short job."""
    (cycle,) = read(recorded(busy()))
    run = replay(cycle, "srtf-preemptive")
    assert (run.recorded_policy, run.policy) == ("has", "srtf-preemptive")
    assert "r" in run.differences
    assert run.decisions["r"]["decision"] in ("preempt", "resize")
    assert run.as_json()["differences"] == run.differences


def test_plans_are_written_once_and_without_what_only_ranks_need():
    plan = replace(ONE, deepspeed_config={"secret": 1}, environment={"A": "b"})
    question = a_question({"n": {"rtx": 1}}, [waiting(f"j{n}", n, plan) for n in range(5)])
    text = recorded(question)
    assert len(json.loads(text)["plans"]) == 1
    assert "secret" not in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: [], "no key 'recording'"),
        (lambda data: {**data, "recording": 2}, "version 2; this Frenzy reads version 1"),
        (lambda data: {"recording": 1, "plans": {}}, "'cycles' is missing"),
        (lambda data: {**data, "plans": {"x": {}}}, "plans or cycles are broken"),
        (lambda data: {**data, "plans": {}}, "cycle 1 is broken"),
        (lambda data: {**data, "cycles": [{}]}, "cycle 1 is broken: 'queue' is missing"),
        (lambda data: {**data, "cycles": [5]}, "cycle 1 is broken"),
        (lambda data: {**data, "cycles": 5}, "plans or cycles are broken"),
    ],
)
def test_what_is_no_recording_says_so(change, says):
    data = json.loads(recorded(busy()))
    with pytest.raises(BadRequest, match=says) as refused:
        read(json.dumps(change(data)))
    assert "frenzy admin record" in refused.value.suggestions[0]


def test_a_policy_of_the_future_and_text_that_is_not_json_are_refused():
    data = json.loads(recorded(busy()))
    data["cycles"][0]["policy"]["name"] = "oracle"
    with pytest.raises(BadRequest, match="cycle 1 is broken: there is no policy 'oracle'"):
        read(json.dumps(data))
    with pytest.raises(BadRequest, match="not JSON"):
        read(b"\xff{")
    (cycle,) = read(recorded(busy()))
    with pytest.raises(BadRequest, match="no policy 'nope'"):
        replay(cycle, "nope")


def test_a_newer_writers_fields_are_ignored():
    data = json.loads(recorded(busy()))
    data["later"] = data["cycles"][0]["later"] = 1
    data["cycles"][0]["queue"][0]["later"] = data["cycles"][0]["policy"]["constants"]["later"] = 1
    (cycle,) = read(json.dumps(data))
    assert replay(cycle).differences == []


async def test_live_cycles_replay_as_they_were_decided(tmp_path):
    folder = tmp_path / "cycles"
    async with Bench(policy="frenzy", record_cycles=folder, record_keep=3) as bench:
        await bench.node("n1", devices=2)
        for number in range(4):
            await bench.queue(f"j{number}", a_plan(f"p{number}", "rtx", 1, 1.0))
            bench.clock.advance(1.0)
            await bench.turn()
        assert await bench.state("j0") == "RESERVED"
        payload = await bench.bus.request(
            subjects.SCHEDULER_RECORD, RecordRequest(cycles=3).encode(), timeout_s=1
        )
    files = sorted(folder.iterdir())
    assert len(files) == 3
    text = gzip.decompress(base64.b64decode(RecordReply.decode(payload).recording))
    cycles = [*read(text), *(cycle for file in files for cycle in read(file.read_text()))]
    assert len(cycles) == 6
    assert all(replay(cycle).differences == [] for cycle in cycles)
    assert {one["decision"] for cycle in cycles for one in cycle.decisions} == {"place", "hold"}
    assert JobId("j0") in {job.id for job in cycles[-1].question.running}


async def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    async with Bench(record_cycles=blocked / "cycles") as bench:
        await bench.node("n1")
        await bench.queue("j1")
        await bench.queue("j2")
        await bench.turn()
        assert await bench.state("j1") == "RESERVED"
    assert [r.message for r in caplog.records if "not recorded" in r.message] != []


async def test_only_the_leader_has_cycles_to_give():
    async with Bench() as bench:
        bench.scheduler.leadership.lose()
        message = RecordRequest().encode()
        found = await bench.scheduler._incoming.record(type("M", (), {"payload": message})())
        assert found is None


async def test_what_is_too_much_for_one_message_says_what_to_do(monkeypatch):
    monkeypatch.setattr("frenzy_scheduler.recorder._MOST_BYTES", 10)
    recorder = Recorder(folder=None, keep=1)
    reply = await recorder.recording(1, busy())
    assert reply.recording == ""
    assert "ask for fewer" in reply.error
    assert "FRENZY_RECORD_CYCLES=<folder>" in reply.error
