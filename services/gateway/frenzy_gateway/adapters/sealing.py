"""Seal secrets with AES-256-GCM under the keys of a file.

A value is bound to its project and name: sealed text that somebody with access to the store moves
to another place opens nowhere.
"""

import base64
import binascii
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from frenzy_gateway.sealed import CannotOpen
from frenzy_shared.errors import Misconfigured

_FORMAT: Final = "v1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals with the first key, opens with any: a new first line of the file is a new key."""

    _keys: dict[str, AESGCM]  # by fingerprint, the first one first

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of keys: 64 hex digits a line.

        Raises:
            Misconfigured: it is missing, holds something else, or others may read it.
        """
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            lines = path.read_text(encoding="ascii").split()
            keys = [bytes.fromhex(line) for line in lines]
        except (OSError, ValueError) as error:
            raise _bad_file(path, f"cannot be read: {type(error).__name__}") from None
        if mode & 0o077:
            raise _bad_file(path, f"may be read by others (mode {mode:04o})")
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise _bad_file(path, f"must hold keys of {2 * _KEY_BYTES} hex digits, one a line")
        return cls({_fingerprint(key): AESGCM(key) for key in keys})

    def seal(self, value: str, place: str) -> str:
        """Return ``value`` as only a holder of the first key can read it, for one place."""
        fingerprint, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + key.encrypt(nonce, value.encode(), place.encode())
        return f"{_FORMAT}.{fingerprint}.{base64.b64encode(sealed).decode()}"

    def open(self, sealed: str, place: str) -> str:
        """Return the value that was sealed for a place.

        Raises:
            CannotOpen: its key is not in the file, or it was made for another place.
        """
        kind, fingerprint, text = [*sealed.split("."), "", ""][:3]
        key = self._keys.get(fingerprint)
        if kind != _FORMAT or key is None:
            raise CannotOpen(f"it is sealed with a key that this gateway lacks ({fingerprint})")
        try:
            data = base64.b64decode(text, validate=True)
            nonce, rest = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            return key.decrypt(nonce, rest, place.encode()).decode()
        except (InvalidTag, ValueError, binascii.Error):
            raise CannotOpen("it was changed, or sealed for another project or name") from None

    def is_current(self, sealed: str) -> bool:
        """Tell whether something is sealed with the first key."""
        return sealed.startswith(f"{_FORMAT}.{next(iter(self._keys))}.")


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"frenzy secrets key" + key).hexdigest()[:8]


def _bad_file(path: Path, why: str) -> Misconfigured:
    return Misconfigured(
        f"FRENZY_SECRETS_KEY: {path} {why}",
        suggestions=("make one: (umask 077; openssl rand -hex 32 > FILE)",),
    )
