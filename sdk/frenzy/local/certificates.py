"""Certificates of one cluster: an authority of its own, and one for its servers.

Made when other machines may join (`frenzy up --listen`). The authority's key stays in the folder,
mode 0600; who joins gets the authority's certificate and checks it by its fingerprint.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from frenzy_shared.errors import Misconfigured
from frenzy_shared.files import write_private

_AUTHORITY_LIFE: Final = dt.timedelta(days=3650)
_LIFE: Final = dt.timedelta(days=365)
RENEW_BEFORE: Final = dt.timedelta(days=30)
_BACKDATED: Final = dt.timedelta(hours=1)  # clocks of machines differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """PEM files of a server: its chain, its key, and the authority that signed it."""

    chain: Path
    key: Path
    authority: Path


def ensure(folder: Path, names: Sequence[str], now: dt.datetime) -> Certificate:
    """Return a certificate that is valid for ``names`` (DNS names and addresses).

    It is made anew when there is none, a name is missing, or it ends within 30 days. The
    authority stays the same, so nodes that have joined go on trusting it.

    Raises:
        Misconfigured: a file is not what was written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = Certificate(
        chain=folder / "server.pem", key=folder / "server.key", authority=folder / "ca.pem"
    )
    authority, authority_key = _authority(found.authority, folder / "ca.key", now)
    if not _serves(found, authority, names, now):
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _server(names, key, authority, authority_key, now)
        write_private(found.key, _key_text(key))
        write_private(found.chain, _text(signed))
    return found


def ends(path: Path) -> dt.datetime:
    """Return when a certificate expires.

    Raises:
        Misconfigured: the file is none.
    """
    return _load(path).not_valid_after_utc


def _authority(
    path: Path, key_path: Path, now: dt.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if path.exists():
        try:
            key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(key_path, error) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _damaged(key_path, "not a key of an elliptic curve")
        return _load(path), key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Frenzy cluster authority")])
    made = (
        _builder(name, name, key, now, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _key_text(key))
    write_private(path, _text(made))
    return made, key


def _server(
    names: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Frenzy")])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(subject, authority.subject, key, now, _LIFE)
        .add_extension(x509.SubjectAlternativeName([_general(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    life: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _serves(
    found: Certificate, authority: x509.Certificate, names: Sequence[str], now: dt.datetime
) -> bool:
    if not (found.chain.exists() and found.key.exists()):
        return False
    served = _load(found.chain)
    held = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        served.issuer == authority.subject
        and served.not_valid_after_utc - now > RENEW_BEFORE
        and {_general(name) for name in names} <= set(held)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _load(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _damaged(path: Path, why: object) -> Misconfigured:
    return Misconfigured(
        f"{path} cannot be used: {why}",
        suggestions=(f"delete the folder {path.parent}: nodes must then join again",),
    )
