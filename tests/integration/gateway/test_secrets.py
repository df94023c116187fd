"""The real gateway's keys of secrets: a new one takes over at a restart, a bad file is refused."""

from pathlib import Path

from tests.integration.gateway.conftest import Start
from tests.support.nats import NatsServer
from tests.support.secrets import KEYS, VALUE, key_file
from tests.support.valkey import ValkeyProcess

from frenzy_gateway.adapters.sealing import Sealer
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.state.redis import RedisStore

DEFAULT = ProjectName("default")


async def test_a_new_key_takes_over_at_a_restart(
    processes: Start,
    bus: NatsBus,
    store: RedisStore,
    nats_server: NatsServer,
    valkey: ValkeyProcess,
    tmp_path: Path,
) -> None:
    keys = key_file(tmp_path)
    first = await processes(nats_server.url, valkey.url, secrets_key=str(keys)).ready()
    async with first.client() as client:
        put = await client.put("/api/v1/projects/default/secrets/hub-token", content=VALUE)
        assert put.status_code == 200
    first.terminate()
    assert await first.ended() == 0
    (before,) = await store.secrets(DEFAULT)

    key_file(tmp_path, KEYS[1], KEYS[0])
    second = await processes(nats_server.url, valkey.url, secrets_key=str(keys)).ready()
    (after,) = await store.secrets(DEFAULT)
    assert after.updated_ms == before.updated_ms
    new = Sealer.load(key_file(tmp_path, KEYS[1]))
    assert new.open(after.sealed, "default/hub-token") == VALUE
    assert "1 secrets are sealed with a newer key now" in second.log.read_text()
    assert VALUE not in first.log.read_text() + second.log.read_text()


async def test_a_key_that_others_may_read_is_refused_at_the_start(
    processes: Start, bus: NatsBus, nats_server: NatsServer, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    keys = key_file(tmp_path)
    keys.chmod(0o644)
    refused = processes(nats_server.url, valkey.url, secrets_key=str(keys))
    assert await refused.ended() == 2
    said = refused.log.read_text()
    assert f"FRENZY_SECRETS_KEY: {keys} may be read by others (mode 0644)" in said
    assert KEYS[0] not in said
