"""Bodies of the HTTP API about secrets: names and times. Values go in and never come out."""

from datetime import datetime
from typing import Final

from frenzy_shared.messages.base import Wire
from frenzy_shared.units import KIB

MAX_SECRET_BYTES: Final = 64 * KIB


class SecretView(Wire):
    """A secret without its value."""

    name: str
    project: str
    updated_at: datetime


class SecretList(Wire):
    """A project's secrets, by name."""

    secrets: tuple[SecretView, ...]
