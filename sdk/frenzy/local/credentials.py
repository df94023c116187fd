"""Random credentials of one machine's cluster, made once."""

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from frenzy.local.files import read_json, write_json
from frenzy.local.layout import Layout
from frenzy_shared.auth import new_token
from frenzy_shared.errors import Misconfigured
from frenzy_shared.files import write_private

STORE_ADMIN: Final = "admin"
STORE_ACCOUNTS: Final = ("gateway", "marp", "scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The store's password and the administrator's API token."""

    redis_password: str  # of the administrator; the services' are made from it
    admin_token: str

    def store_password(self, account: str) -> str:
        """Return the password of one account of the store."""
        if account == STORE_ADMIN:
            return self.redis_password
        key, about = self.redis_password.encode(), f"store account {account}".encode()
        return hmac.new(key, about, hashlib.sha256).hexdigest()


def load_or_make(layout: Layout) -> Credentials:
    """Return the stored credentials, made at the first call (mode 0600).

    Raises:
        Misconfigured: the file is there but is not what was written.
    """
    stored = read_json(layout.secrets)
    if stored is not None:
        names = [field.name for field in fields(Credentials)]
        if not all(isinstance(stored.get(name), str) for name in names):
            raise _damaged(layout)
        return Credentials(**{name: stored[name] for name in names})
    if layout.secrets.exists():
        raise _damaged(layout)
    made = Credentials(
        redis_password=secrets.token_hex(32),
        admin_token=new_token().text,
    )
    write_json(layout.secrets, asdict(made))
    return made


def secrets_key(layout: Layout) -> Path:
    """Return the file of the keys that seal jobs' secrets, made at the first call (mode 0600)."""
    if not layout.secrets_key.exists():
        write_private(layout.secrets_key, f"{secrets.token_hex(32)}\n")
    return layout.secrets_key


def _damaged(layout: Layout) -> Misconfigured:
    return Misconfigured(
        f"{layout.secrets} is damaged", suggestions=("delete it: new credentials are made",)
    )
