"""Key pairs of identities on the bus: an Ed25519 seed in a private file, and its public key."""

import os
from pathlib import Path

import nkeys

from frenzy_shared.errors import Misconfigured
from frenzy_shared.files import write_private


def load_or_make(path: Path) -> str:
    """Return the public key of the seed in ``path``, which is made at the first call (mode 0600).

    Raises:
        Misconfigured: the file holds no seed.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        write_private(path, f"{seed.decode()}\n")
    return public_key(path)


def public_key(path: Path) -> str:
    """Return the public key of the seed in ``path``.

    Raises:
        Misconfigured: it cannot be read, or holds no seed.
    """
    try:
        pair = nkeys.from_seed(bytearray(path.read_bytes().strip()))
        return str(pair.public_key.decode())
    except (OSError, ValueError, nkeys.NkeysError) as error:
        raise Misconfigured(
            f"{path} holds no nkey seed: {error or type(error).__name__}",
            suggestions=("delete it: a new one is made, which the server must get to know",),
        ) from None
