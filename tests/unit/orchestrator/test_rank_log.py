"""Log lines: each once, whatever fails between the file and the stream."""

import random

import pytest

from frenzy_orchestrator.adapters.logs import RankLog
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.memory_broker import MemoryBroker
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import LogBatch


class Crash(Exception):
    pass


class ShakyBus(MemoryBus):
    """Stores or loses a message, and then may fail: the caller cannot know which."""

    fail_before = fail_after = False

    async def publish(self, subject, payload, *, message_id, headers=None):
        if self.fail_before:
            raise Unavailable("lost")
        stored = await super().publish(subject, payload, message_id=message_id, headers=headers)
        if self.fail_after:
            raise Crash
        return stored


@pytest.fixture
def bus():
    return ShakyBus(MemoryBroker())


def rank_log(folder, quota=10**9):
    return RankLog(
        folder=folder,
        project="default",
        job="j1",
        attempt=1,
        rank=0,
        node="node-a",
        quota_bytes=quota,
        now_ms=lambda: 1,
    )


def write(folder, text, output="stdout"):
    with (folder / f"{output}.log").open("a") as file:
        file.write(text)


def stored(bus):
    return [
        line
        for message in bus.broker.messages(subjects.LOGS_STREAM)
        for line in LogBatch.decode(message.payload).lines
    ]


async def drain(log, bus):
    while await log.ship(bus, at_end=True):
        pass


async def test_a_crash_after_the_publish_repeats_nothing_and_loses_nothing(tmp_path, bus):
    write(tmp_path, "one\n")
    bus.fail_after = True
    with pytest.raises(Crash):
        await rank_log(tmp_path).ship(bus, at_end=False)
    write(tmp_path, "two\n")  # a batch made anew would be "one, two" under the id of "one"
    bus.fail_after = False
    await drain(rank_log(tmp_path), bus)
    assert [(line.number, line.text) for line in stored(bus)] == [(1, "one"), (2, "two")]


async def test_an_outage_only_delays(tmp_path, bus):
    write(tmp_path, "one\n")
    log = rank_log(tmp_path)
    bus.fail_before = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            await log.ship(bus, at_end=False)
    write(tmp_path, "two\n")
    bus.fail_before = False
    await drain(log, bus)
    assert [line.text for line in stored(bus)] == ["one", "two"]


async def test_any_mix_of_crashes_and_outages_ships_each_line_once(tmp_path, bus):
    chance = random.Random(5)
    log, written = rank_log(tmp_path), 0
    for _ in range(300):
        for _ in range(chance.randrange(4)):
            written += 1
            write(tmp_path, f"line {written}\n", chance.choice(["stdout", "stderr"]))
        bus.fail_before = chance.random() < 0.2
        bus.fail_after = chance.random() < 0.2
        try:
            await log.ship(bus, at_end=False)
        except (Unavailable, Crash) as error:
            if isinstance(error, Crash) or chance.random() < 0.5:
                log = rank_log(tmp_path)  # killed before, or after, the stream had it
    bus.fail_before = bus.fail_after = False
    await drain(log, bus)
    lines = stored(bus)
    assert [line.number for line in lines] == list(range(1, written + 1))
    assert sorted(int(line.text.split()[1]) for line in lines) == list(range(1, written + 1))


async def test_the_quota_ends_with_one_line_that_says_so(tmp_path, bus):
    write(tmp_path, "x" * 99 + "\n")
    log = rank_log(tmp_path, quota=2048)
    assert not log.over_quota
    write(tmp_path, ("x" * 99 + "\n") * 200)
    assert log.over_quota
    await drain(log, bus)
    before = stored(bus)
    write(tmp_path, "more\n")
    await drain(rank_log(tmp_path, quota=2048), bus)
    assert stored(bus) == before
    assert "more than 2.00 KiB" in before[-1].text
    log.trim()
    assert (tmp_path / "stdout.log").stat().st_size == 2048


async def test_a_batch_of_empty_lines_fits_into_a_message(tmp_path, bus):
    write(tmp_path, "\n" * 5000 + "\x01" * 60_000 + "\n")
    await drain(rank_log(tmp_path), bus)
    assert len(stored(bus)) == 5000 + 4
    assert max(len(m.payload) for m in bus.broker.messages(subjects.LOGS_STREAM)) < 900_000
