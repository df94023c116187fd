"""``frenzy version``."""

import os
import sys

from rich.text import Text

import frenzy
from frenzy.cli import output
from frenzy.cli.options import Format, Output, Url
from frenzy.client import Client
from frenzy.errors import FrenzyError, Unreachable
from frenzy.exchange import Retry


def version(*, output_: Output = Format.TABLE, url: Url = None) -> None:
    """Print versions."""
    server: str | None = None
    try:
        with Client(url, retry=Retry(attempts=1)) as client:
            server = client.version().version
    except Unreachable as error:
        chosen = bool(url or os.environ.get("FRENZY_URL"))
        text = error.message if chosen else "none running (frenzy up starts one)"
        output.err().print(Text(f"server: {text}", style="dim"))
    except FrenzyError as error:
        output.err().print(Text(f"server: {error.message}", style="dim"))
    if output_ in (Format.JSON, Format.YAML):
        output.write_data({"client": frenzy.__version__, "server": server}, output_)
    else:
        sys.stdout.write(f"frenzy {frenzy.__version__}\n")
        if server is not None:
            sys.stdout.write(f"server {server}\n")
