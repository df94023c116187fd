"""A store that is down because its disk is full is said to be so, where its log can be read."""

from dataclasses import replace

import pytest

from frenzy_gateway.diagnosis import disk_is_full
from frenzy_shared.state.port import StoreUnreachable

READY = "21568:M * Ready to accept connections tcp\n"
FULL = "21568:M # Error writing to the AOF file: No space left on device\n"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "valkey.log"


@pytest.mark.parametrize(
    ("said", "full"),
    [
        (READY + FULL + "Exiting...\n", True),
        (READY + FULL + "x" * 5000 + "\n", True),
        (FULL + READY, False),  # it has come back since
        (READY, False),
        ("", False),
    ],
)
def test_the_last_words_count(log, said, full):
    log.write_text(said)
    assert disk_is_full(log) == full


def test_a_log_that_is_not_there_tells_nothing(log):
    assert not disk_is_full(log)


async def test_answers_name_it(gateway, admin, log, problem, monkeypatch):
    async def away(*_, **__):
        raise StoreUnreachable("the store cannot be reached: connection refused")

    settings = gateway.service.settings.model_copy(update={"store_log": log})
    gateway.api.state.service = replace(gateway.service, settings=settings)
    monkeypatch.setattr(gateway.store, "cluster", away, raising=False)
    assert "disk" not in problem(await admin.get("/api/v1/nodes"), 503, "unavailable")["detail"]
    log.write_text(READY + FULL)
    body = problem(await admin.get("/api/v1/nodes"), 503, "unavailable")
    assert "its disk is full" in body["detail"]
    assert "free space" in body["suggestions"][0]
