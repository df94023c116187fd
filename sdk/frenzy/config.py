"""Where the server is and what token to show it: arguments, then environment, then user file.

The user file is ``$XDG_CONFIG_HOME/frenzy/config.toml`` (mode 0600; ``frenzy up`` writes it)::

    url = "http://127.0.0.1:8642"
    token = "frz_..."
    ca = "/path/to/ca.pem"      # only where the server's certificate is not of a public authority
"""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frenzy_shared.errors import Misconfigured
from frenzy_shared.files import write_private

if TYPE_CHECKING:
    import ssl

DEFAULT_URL: Final = "http://127.0.0.1:8642"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server, which several gateways may stand for. ``source`` says where ``urls`` came from.

    ``ca`` is a file of certificates that the server's must be signed by; empty: the system's.
    """

    urls: tuple[str, ...]  # of its gateways, at least one
    token: str
    source: str
    ca: str = ""

    @property
    def url(self) -> str:
        """Return the first gateway's address, which stands for the server."""
        return self.urls[0]

    def verify(self) -> "ssl.SSLContext | bool":
        """Return what httpx checks the server's certificate by.

        Raises:
            Misconfigured: the file cannot be used.
        """
        if not self.ca:
            return True
        import ssl  # noqa: PLC0415 - `frenzy --help` must not pay for it

        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # ssl.SSLError is one
            raise Misconfigured(
                f"the certificates in {self.ca} cannot be used: {error}",
                suggestions=("check FRENZY_CA, or `ca` in the configuration file",),
            ) from None


def user_file() -> Path:
    """Return the user's configuration file."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "frenzy" / "config.toml"


def resolve(url: str | None = None, token: str | None = None, ca: str | None = None) -> Server:
    """Find the server; token and certificates of the user file are for its own URLs only.

    URLs of several gateways are written with commas between them.

    Raises:
        Misconfigured: the user file is unreadable, or a URL is not http(s).
    """
    stored_url, stored_token, stored_ca = _read(user_file())
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
    urls = _urls(chosen, source)
    ours = set(urls) <= set(_urls(stored_url, str(user_file()))) if stored_url else False
    return Server(
        urls=urls,
        token=token or os.environ.get("FRENZY_TOKEN") or (stored_token if ours else ""),
        ca=ca or os.environ.get("FRENZY_CA") or (stored_ca if ours else ""),
        source=source,
    )


def _urls(text: str, source: str) -> tuple[str, ...]:
    urls = tuple(part.strip().rstrip("/") for part in text.split(","))
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise Misconfigured(f"{source}: {url!r} is not a URL; write for example {DEFAULT_URL}")
    return urls


def save(path: Path, url: str, token: str, ca: str = "") -> None:
    """Write a configuration file that only its owner can read, all or nothing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = ["# Written by `frenzy up`; keep it private."]
    lines += [f"{name} = {json.dumps(text)}" for name, text in (("url", url), ("token", token))]
    lines += [f"ca = {json.dumps(ca)}"] if ca else []
    write_private(path, "\n".join(lines) + "\n")


def _read(path: Path) -> tuple[str, str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "", "", ""
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misconfigured(
            f"cannot read {path}: {error}", suggestions=("correct or delete that file",)
        ) from None
    url, token, ca = (str(document.get(name, "")) for name in ("url", "token", "ca"))
    return url, token, ca
