"""Random credentials of one machine's cluster, made once."""

import secrets
from dataclasses import asdict, dataclass, fields

from frenzy.local.files import read_json, write_json
from frenzy.local.layout import Layout
from frenzy_shared.auth import new_token
from frenzy_shared.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The store's password and the administrator's API token."""

    redis_password: str
    admin_token: str


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


def _damaged(layout: Layout) -> Misconfigured:
    return Misconfigured(
        f"{layout.secrets} is damaged", suggestions=("delete it: new credentials are made",)
    )
