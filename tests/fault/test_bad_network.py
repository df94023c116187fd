"""Delays, lost answers and resets between every service and both servers, with jobs at work."""

import threading

import pytest
from tests.support.deployment import Deployment
from tests.support.history import check
from tests.support.recording import history_of
from tests.support.weather import FINE, Weather, WeatherProxy

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

WEATHER = {
    "delayed": Weather(delay_s=2.0),
    "reset": Weather(lives_s=(0.2, 2.5)),
    "lost": Weather(lost=0.05),
}
LASTS_S = 6.0


class Exposed(Deployment):
    """Services reach the servers through proxies only; the test itself reaches them directly."""

    def _services(self, schedulers):
        self.bus, self.store = WeatherProxy(self.nats.port), WeatherProxy(self.valkey.port)
        self.proxies = (self.bus, self.store)
        for proxy in self.proxies:
            proxy.start()
        yield from super()._services(schedulers)

    def set_weather(self, weather):
        for proxy in self.proxies:
            proxy.weather = weather

    def stop(self):
        super().stop()
        for proxy in self.proxies:
            proxy.stop()

    def _service(self, name, module, **settings):
        urls = {
            "NATS_URL": self.nats.url.replace(str(self.nats.port), str(self.bus.port)),
            "REDIS_URL": self.valkey.url.replace(str(self.valkey.port), str(self.store.port)),
        }
        return super()._service(name, module, **settings, **urls)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with Exposed(tmp_path_factory.mktemp("exposed")) as running:
        yield running


@pytest.mark.parametrize("kind", WEATHER)
def test_bad_weather_costs_time_only(system, kind):
    lasting = system.submit(f"lasts-{kind}", ranks=2, seconds=LASTS_S)
    system.until(lambda: system.job(lasting)["state"] == "RUNNING", "it runs", 60)
    system.set_weather(WEATHER[kind])
    clearing = threading.Timer(LASTS_S, system.set_weather, [FINE])
    clearing.start()
    jobs = [system.submit(f"{kind}-{number}", ranks=1 + number % 2) for number in range(4)]
    clearing.join()
    assert all(proxy.seen[kind] for proxy in system.proxies)
    for job in (lasting, *jobs):
        end = system.finished(job)
        assert (end["state"], end["retries"]) == ("SUCCEEDED", 0)  # a launch may be given up


def test_the_whole_history_is_right(system):
    assert check(history_of(system)) == []
    assert system.unexpected_exits() == {}
