"""Commands and configuration of the two servers, from the files in ``deploy/``."""

import os
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from frenzy import extras
from frenzy.local.binaries import Server
from frenzy.local.credentials import STORE_ACCOUNTS, STORE_ADMIN, Credentials
from frenzy.local.doors import Doors
from frenzy.local.layout import Layout
from frenzy_shared.bus.nats_users import UsersFile
from frenzy_shared.errors import Misconfigured
from frenzy_shared.files import write_private
from frenzy_shared.state.server import ACCOUNT_RULES

if TYPE_CHECKING:
    from frenzy.local.certificates import Certificate


def deploy_folder() -> Path:
    """Return the folder of server configurations: in the package, else of the checkout.

    Raises:
        Misconfigured: neither is there (a broken installation).
    """
    package = Path(__file__).parents[1]
    for folder in (package / "_deploy", package.parents[1] / "deploy"):
        if (folder / "nats" / "nats.conf").is_file():
            return folder
    raise Misconfigured(
        f"the server configurations are missing from {package}",
        suggestions=("install Frenzy again: pip install --force-reinstall --no-deps frenzy",),
    )


def nats_command(server: Server, layout: Layout, doors: Doors) -> list[str]:
    """Write the configuration of nats-server and return its command."""
    template = Template((deploy_folder() / "nats" / "nats.conf").read_text(encoding="utf-8"))
    store = layout.server("nats")
    store.mkdir(exist_ok=True)
    config = layout.configs / "nats.conf"
    filled = template.substitute(
        STORE_DIR=store,
        HOST=doors.host,
        PORT=doors.bus_port,
        AUTHORIZATION=f'include "{UsersFile(layout.bus_users).configuration.name}"',
        TLS=_tls_block(doors.certificate),
    )
    write_private(config, filled)
    return [str(server.path), "-c", str(config)]


def valkey_command(server: Server, layout: Layout, port: int, secret: Credentials) -> list[str]:
    """Write the configuration of valkey-server and return its command."""
    data = layout.server("valkey")
    data.mkdir(exist_ok=True)
    config = layout.configs / "valkey.conf"
    lines = (
        f'include "{deploy_folder() / "valkey" / "valkey.conf"}"',
        "user default off",
        _account(secret, STORE_ADMIN, "~* &* +@all"),
        *(_account(secret, name, ACCOUNT_RULES) for name in STORE_ACCOUNTS),
        f'dir "{data}"',
        f"port {port}",
        'logfile ""',
    )
    write_private(config, "\n".join(lines) + "\n")
    return [str(server.path), str(config)]


def _account(secret: Credentials, name: str, rules: str) -> str:
    return f"user {name} on >{secret.store_password(name)} {rules}"


def _tls_block(certificate: "Certificate | None") -> str:
    if certificate is None:
        return "# no TLS: on loopback"
    return (
        f'tls {{ cert_file: "{certificate.chain}", key_file: "{certificate.key}", '
        f'min_version: "1.2" }}'
    )


def require_packages() -> None:
    """Check that the extras which the services need are installed.

    Raises:
        Misconfigured: naming what is missing.
    """
    names = extras.missing()
    if names:
        raise extras.not_installed(names)


def child_environment(temporary: Path) -> dict[str, str]:
    """Return what every child inherits: how to find programs, nothing of the caller's secrets."""
    passed = ("HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
    found = {name: os.environ[name] for name in passed if name in os.environ}
    return {
        **found,
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
    }
