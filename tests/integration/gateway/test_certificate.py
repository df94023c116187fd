"""The API's certificate: read again when it is renewed, and announced before it ends."""

import datetime as dt
import logging
import ssl

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from tests.support.tls import Served, peer

from frenzy.local.certificates import ensure
from frenzy_gateway.adapters.certificate import ServedCertificate
from frenzy_shared.errors import Misconfigured

NOW = dt.datetime.now(dt.UTC)
YEAR = dt.timedelta(days=365)


def made(folder, now=NOW):
    for name in ("server.pem", "server.key"):
        (folder / name).unlink(missing_ok=True)
    return ensure(folder, ("127.0.0.1",), now)


def served(certificate, now=NOW):
    return ServedCertificate(certificate.chain, certificate.key, lambda: now)


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path):
    certificate = made(tmp_path)
    api = FastAPI()
    api.get("/")(lambda: "here")
    trust = ssl.create_default_context(cafile=str(certificate.authority))
    async with Served(api, served(certificate)) as (served_, url):
        async with httpx.AsyncClient(verify=trust) as lasting:
            assert (await lasting.get(url)).json() == "here"
            first = await peer(url, trust)
            made(tmp_path)
            certificate.key.write_text("half written")
            await served_.look()
            assert await peer(url, trust) == first
            made(tmp_path)
            await served_.look()
            assert await peer(url, trust) != first
            assert (await lasting.get(url)).json() == "here"


async def test_an_expired_certificate_is_refused_by_clients(tmp_path):
    certificate = made(tmp_path, NOW - 2 * YEAR)
    trust = ssl.create_default_context(cafile=str(certificate.authority))
    async with Served(FastAPI(), served(certificate)) as (_, url):
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await peer(url, trust)


@pytest.mark.parametrize(
    ("left", "said"),
    [(dt.timedelta(days=20), ""), (dt.timedelta(days=10), "expires"), (-YEAR, "expired")],
)
async def test_its_end_is_announced_and_measured(tmp_path, caplog, left, said):
    registry = CollectorRegistry()
    with caplog.at_level(logging.WARNING):
        one = served(made(tmp_path), NOW + YEAR - left)
        one.register(registry)
        await one.look()
    found = registry.get_sample_value("frenzy_certificate_expiry_seconds")
    assert found == pytest.approx(left.total_seconds(), abs=1)
    assert [record.message.split()[4] for record in caplog.records] == [said][: bool(said)]


def test_files_that_are_no_certificate_are_refused(tmp_path):
    certificate = made(tmp_path)
    certificate.chain.write_text("nothing")
    with pytest.raises(Misconfigured, match=r"server\.pem.*cannot be used"):
        served(certificate)
