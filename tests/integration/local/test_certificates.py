"""Certificates of a cluster that other machines join: trusted, renewed, and never half made."""

import asyncio
import datetime as dt
import socket
import ssl
import threading

import pytest
from cryptography import x509

from frenzy.local import supervisor
from frenzy.local.certificates import ends, ensure
from frenzy.local.doors import doors_of
from frenzy.local.layout import Layout
from frenzy.local.options import Options, parse_listen
from frenzy.local.supervisor import Supervisor
from frenzy_shared.auth import fingerprint
from frenzy_shared.errors import Misconfigured

NOW = dt.datetime.now(dt.UTC)
NAMES = ("127.0.0.1", "localhost")


def handshake(certificate, name):
    """Return what a client that trusts the authority makes of the server."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate.chain, certificate.key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        try:
            server.wrap_socket(connection, server_side=True).close()
        except (ssl.SSLError, OSError):
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    client = ssl.create_default_context(cafile=str(certificate.authority))
    try:
        with socket.create_connection(listener.getsockname()) as plain:
            client.wrap_socket(plain, server_hostname=name).close()
    finally:
        thread.join()
        listener.close()


def test_who_trusts_the_authority_trusts_the_server_by_every_name(tmp_path):
    certificate = ensure(tmp_path, NAMES, NOW)
    for name in NAMES:
        handshake(certificate, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificate, "10.0.0.5")
    assert certificate.key.stat().st_mode & 0o077 == 0
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0


def test_it_is_kept_while_it_serves_and_renewed_before_it_ends(tmp_path):
    first = ensure(tmp_path, NAMES, NOW).chain.read_bytes()
    assert ensure(tmp_path, NAMES, NOW + dt.timedelta(days=300)).chain.read_bytes() == first
    renewed = ensure(tmp_path, NAMES, NOW + dt.timedelta(days=336))
    assert renewed.chain.read_bytes() != first
    served = x509.load_pem_x509_certificate(renewed.chain.read_bytes())
    assert served.not_valid_after_utc > NOW + dt.timedelta(days=600)


async def test_a_supervisor_renews_it_in_its_last_days(tmp_path, monkeypatch):
    layout = Layout(tmp_path)
    options = Options(listen="127.0.0.2")
    made = doors_of(layout, options, free_port=0).certificate.chain.read_bytes()
    names = ("127.0.0.2", "127.0.0.1", "localhost", socket.gethostname())
    layout.certificate.unlink()
    ensure(layout.certificates, names, NOW - dt.timedelta(days=340))
    monkeypatch.setattr(supervisor, "_RENEW_S", 0.01)
    tending = asyncio.ensure_future(Supervisor(layout, options, print)._tend_certificate())
    async with asyncio.timeout(10):
        while ends(layout.certificate) < NOW + dt.timedelta(days=300):
            await asyncio.sleep(0.01)
    tending.cancel()
    assert layout.certificate.read_bytes() != made


def test_a_new_name_makes_a_new_certificate_of_the_same_authority(tmp_path):
    before = ensure(tmp_path, NAMES, NOW)
    authority = fingerprint(before.authority.read_text())
    after = ensure(tmp_path, (*NAMES, "10.0.0.5"), NOW)
    handshake(after, "10.0.0.5")
    assert fingerprint(after.authority.read_text()) == authority


@pytest.mark.parametrize("name", ["ca.pem", "ca.key", "server.pem"])
def test_a_damaged_file_is_named(tmp_path, name):
    ensure(tmp_path, NAMES, NOW)
    (tmp_path / name).write_text("nothing")
    with pytest.raises(Misconfigured, match=name.replace(".", r"\.")):
        ensure(tmp_path, NAMES, NOW)


@pytest.mark.parametrize("text", ["0.0.0.0", "::", "head", "10.0.0", "10.0.0.5:80"])
def test_only_one_concrete_address_can_be_listened_on(text):
    with pytest.raises(Misconfigured, match="--listen"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("", ""),
        ("localhost", ""),
        ("127.0.0.1", ""),
        ("10.0.0.5", "10.0.0.5"),
        ("fd00::1", "fd00::1"),
    ],
)
def test_loopback_needs_no_certificate(text, listen):
    assert parse_listen(text) == listen
