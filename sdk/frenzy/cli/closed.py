"""Say beside a listing that the store is in SAFE MODE: what is listed does not move."""

import logging

from rich.text import Text

from frenzy.cli import output
from frenzy.client import Client
from frenzy.errors import FrenzyError

log = logging.getLogger(__name__)


def look(client: Client) -> None:
    """Ask the server, and say it on stderr if it is so."""
    try:
        say(client.readiness().safe_mode)
    except FrenzyError as error:  # the listing was answered: this is only beside it
        log.debug("whether the store is in SAFE MODE is unknown: %s", error)


def say(why: str) -> None:
    """Say why nothing starts or changes at present; nothing when it may."""
    if why:
        output.err().print(Text(sentence(why), style="bold red"))


def sentence(why: str) -> str:
    """Return one line about it."""
    return (
        f"SAFE MODE: {why.removeprefix('nothing starts or changes: ')}; nothing starts or changes"
    )
