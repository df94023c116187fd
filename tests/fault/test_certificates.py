"""A bus whose certificate has expired: refused at the start, waited for later on."""

import datetime as dt

import pytest
from tests.support.nats import NatsServer
from tests.support.nats_bus import until

from frenzy.local.certificates import ensure
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.errors import Misconfigured
from frenzy_shared.messages import subjects

LONG_AGO = dt.timedelta(days=400)
SUBJECT = subjects.job_event("p", "submitted", "j1")


class Tls:
    """A server of its own with a certificate of its own, which may be made again at will."""

    def __init__(self, folder) -> None:
        self._folder = folder / "tls"
        made = self.make(dt.timedelta())
        files = f'tls {{ cert_file: "{made.chain}", key_file: "{made.key}" }}'
        self.server = NatsServer(folder / "nats", tls=files)
        url = self.server.url.replace("nats://", "tls://")
        self.access = Access(url=url, ca=made.authority)

    def make(self, age):
        """Make a certificate ``age`` ago; the authority stays."""
        (self._folder / "server.pem").unlink(missing_ok=True)
        return ensure(self._folder, ("127.0.0.1",), dt.datetime.now(dt.UTC) - age)


@pytest.fixture
def tls(tmp_path):
    made = Tls(tmp_path)
    yield made
    made.server.stop()


async def test_an_expired_certificate_is_refused_at_the_start(tls):
    tls.make(LONG_AGO)
    tls.server.start()
    with pytest.raises(Misconfigured, match=r"certificate is refused: certificate has expired"):
        await NatsBus.connect(tls.access, name="test")


async def test_a_service_waits_for_a_renewed_certificate(tls, caplog):
    tls.server.start()
    bus = await NatsBus.connect(tls.access, name="test")
    await bus.ensure_streams()
    tls.server.kill()
    tls.make(LONG_AGO)
    tls.server.start()
    await until(lambda: "certificate has expired" in caplog.text)
    assert not bus.connected
    tls.make(dt.timedelta())
    tls.server.kill()
    tls.server.start()
    await until(lambda: bus.connected)
    assert (await bus.publish(SUBJECT, b"x", message_id="1")).sequence == 1
    await bus.close()
