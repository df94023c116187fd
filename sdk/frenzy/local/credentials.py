"""Random credentials of one machine's cluster, made once."""

import secrets
from dataclasses import asdict, dataclass

from frenzy.local.files import read_json, write_json
from frenzy.local.layout import Layout
from frenzy_shared.auth import new_token
from frenzy_shared.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Secrets of the servers and the administrator's API token."""

    nats_token: str
    redis_password: str
    admin_token: str


def load_or_make(layout: Layout) -> Credentials:
    """Return the stored credentials, made at the first call (mode 0600).

    Raises:
        Misconfigured: the file is there but is not what was written.
    """
    stored = read_json(layout.secrets)
    if stored is not None:
        try:
            return Credentials(**stored)
        except TypeError:
            raise _damaged(layout) from None
    if layout.secrets.exists():
        raise _damaged(layout)
    made = Credentials(
        nats_token=secrets.token_hex(32),
        redis_password=secrets.token_hex(32),
        admin_token=new_token().text,
    )
    write_json(layout.secrets, asdict(made))
    return made


def _damaged(layout: Layout) -> Misconfigured:
    return Misconfigured(
        f"{layout.secrets} is damaged", suggestions=("delete it: new credentials are made",)
    )
