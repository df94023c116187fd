"""API tokens and roles: ``frz_<id>_<secret>``, of which the store keeps only a hash.

A secret has 256 random bits, so plain SHA-256 is enough: there is nothing to guess, and a slow
password hash would only slow every request down.
"""

import hashlib
import hmac
import re
import secrets
import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from frenzy_shared.errors import Unauthenticated
from frenzy_shared.state.port import TokenRecord

ALL_PROJECTS: Final = "*"

_ENROLMENT: Final = re.compile(r"fze_([0-9a-f]{12})_([0-9a-f]{64})(?:_([0-9a-f]{64}))?")
_FORMAT: Final = re.compile(r"frz_([0-9a-f]{12})_([0-9a-f]{64})")


class Role(StrEnum):
    """What a token allows; each role includes the ones before it."""

    NODE = "node"  # fetch blobs: what a node agent needs
    VIEWER = "viewer"  # read
    SUBMITTER = "submitter"  # submit, cancel, upload
    ADMIN = "admin"  # make tokens; of all projects: run the cluster

    def includes(self, other: "Role") -> bool:
        """Tell whether this role allows whatever ``other`` allows."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token as its holder knows it. The secret never shows in a repr."""

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """Return what goes into the Authorization header after ``Bearer``."""
        return f"frz_{self.id}_{self.secret}"

    @property
    def secret_sha256(self) -> str:
        """Return the hex hash that the store keeps."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentToken:
    """What makes a machine a node, once. ``fingerprint`` is of the authority that it may trust."""

    id: str
    secret: str = field(repr=False)
    fingerprint: str = ""  # empty: the server's certificate is of a public authority

    @property
    def text(self) -> str:
        """Return ``fze_<id>_<secret>[_<fingerprint>]``."""
        return "_".join(filter(None, ("fze", self.id, self.secret, self.fingerprint)))

    @property
    def secret_sha256(self) -> str:
        """Return the hex hash that is kept."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def new_enrolment_token(authority: str) -> EnrolmentToken:
    """Make a token with a random id and a 256-bit secret, for an authority's fingerprint."""
    return EnrolmentToken(
        id=secrets.token_hex(6), secret=secrets.token_hex(32), fingerprint=authority
    )


def parse_enrolment_token(text: str) -> EnrolmentToken | None:
    """Take an enrolment token apart; None when ``text`` is none."""
    match = _ENROLMENT.fullmatch(text)
    if match is None:
        return None
    return EnrolmentToken(id=match[1], secret=match[2], fingerprint=match[3] or "")


def fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a PEM certificate, as hex.

    Raises:
        ValueError: it is none.
    """
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


def new_token() -> ApiToken:
    """Make a token with a random id and a 256-bit secret."""
    return ApiToken(id=secrets.token_hex(6), secret=secrets.token_hex(32))


def parse_token(text: str) -> ApiToken | None:
    """Take ``frz_<id>_<secret>`` apart; None when ``text`` is not a token."""
    match = _FORMAT.fullmatch(text)
    return ApiToken(id=match[1], secret=match[2]) if match else None


def token_record(
    token: ApiToken, *, role: Role, project: str, name: str, created_ms: int, expires_ms: int = 0
) -> TokenRecord:
    """Return what the store keeps of a token; ``expires_ms`` 0 means never."""
    return TokenRecord(
        id=token.id,
        secret_sha256=token.secret_sha256,
        role=role.value,
        project=project,
        name=name,
        created_ms=created_ms,
        expires_ms=expires_ms,
    )


def check_token(token: ApiToken, record: TokenRecord | None, now_ms: int) -> TokenRecord:
    """Return the record that proves ``token``.

    An unknown id and a wrong secret are told apart by nobody: same text, same comparison.

    Raises:
        Unauthenticated: the token is unknown, wrong or expired; says which, never echoes it.
    """
    stored = record.secret_sha256 if record is not None else "0" * 64
    right = hmac.compare_digest(token.secret_sha256, stored)
    if record is None or not right:
        raise Unauthenticated(
            "the API token is not valid here",
            suggestions=("ask an administrator for a token of this cluster",),
        )
    if record.expires_ms and now_ms >= record.expires_ms:
        raise Unauthenticated(
            f"the API token {record.name or record.id!r} has expired",
            suggestions=("ask an administrator for a new token",),
        )
    return record
