"""Digests as texts: ``sha256:<64 hex>``."""

import hashlib
import re
from typing import Final

from frenzy_shared.errors import BadRequest

CHUNK_BYTES: Final = 1024**2
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")


def hex_of(digest: str) -> str:
    """Return the 64 hex digits of a digest.

    Raises:
        BadRequest: not a digest. (Digests become file names and URLs, so nothing else may pass.)
    """
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise BadRequest(f"{digest[:80]!r} is not a digest; write sha256:<64 hex digits>")
    return match.group(1)


def digest_of(content: bytes) -> str:
    """Return the digest of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
