"""Where the server is and what token to show it: arguments, then environment, then user file.

The user file is ``$XDG_CONFIG_HOME/frenzy/config.toml`` (mode 0600; ``frenzy up`` writes it)::

    url = "http://127.0.0.1:8642"
    token = "frz_..."
"""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_shared.errors import Misconfigured

DEFAULT_URL: Final = "http://127.0.0.1:8642"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server. ``source`` says where the address came from."""

    url: str
    token: str
    source: str


def user_file() -> Path:
    """Return the user's configuration file."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "frenzy" / "config.toml"


def resolve(url: str | None = None, token: str | None = None) -> Server:
    """Find the server; a token from the user file is used only for the URL it was written for.

    Raises:
        Misconfigured: the user file is unreadable, or the URL is not http(s).
    """
    stored_url, stored_token = _read(user_file())
    chosen, source = next(
        (value, source)
        for value, source in (
            (url, "--url"),
            (os.environ.get("FRENZY_URL"), "FRENZY_URL"),
            (stored_url, str(user_file())),
            (DEFAULT_URL, "default"),
        )
        if value
    )
    if not chosen.startswith(("http://", "https://")):
        raise Misconfigured(f"{source}: {chosen!r} is not a URL; write for example {DEFAULT_URL}")
    chosen = chosen.rstrip("/")
    secret = token or os.environ.get("FRENZY_TOKEN")
    if not secret and stored_token and chosen == (stored_url or "").rstrip("/"):
        secret = stored_token
    return Server(url=chosen, token=secret or "", source=source)


def save(path: Path, url: str, token: str) -> None:
    """Write a configuration file that only its owner can read, all or nothing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write("# Written by `frenzy up`; keep it private.\n")
        file.write(f"url = {json.dumps(url)}\ntoken = {json.dumps(token)}\n")
    aside.replace(path)


def _read(path: Path) -> tuple[str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "", ""
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misconfigured(
            f"cannot read {path}: {error}", suggestions=("correct or delete that file",)
        ) from None
    return str(document.get("url", "")), str(document.get("token", ""))
