"""Make this machine a node of a cluster that runs elsewhere, and run its agent after that.

The node's key is made here and never leaves. The token proves the machine to the cluster, and
carries the fingerprint that proves the cluster to the machine.
"""

import os
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

import httpx

from frenzy import extras
from frenzy.errors import Unreachable, from_answer
from frenzy.local.files import read_json, write_json
from frenzy.local.servers import child_environment
from frenzy_shared.auth import EnrolmentToken, fingerprint, parse_enrolment_token
from frenzy_shared.bus import keys
from frenzy_shared.errors import Forbidden, InvalidState, Misconfigured
from frenzy_shared.files import rename, write_private
from frenzy_shared.messages.http import EnrolRequest, EnrolView

_TIMEOUT_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What a node remembers of its cluster."""

    node: str
    url: str
    nats_url: str
    blobs_token: str


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """A node's files on its own machine."""

    root: Path

    @property
    def membership(self) -> Path:
        """Return the file that says which cluster this node belongs to (mode 0600)."""
        return self.root / "membership.json"

    @property
    def key(self) -> Path:
        """Return the seed of the node's identity on the bus."""
        return self.root / "node.nk"

    @property
    def next_key(self) -> Path:
        """Return the seed that takes the place of ``key`` once the cluster knows it."""
        return self.root / "node.nk.next"

    @property
    def authority(self) -> Path:
        """Return the certificate of the cluster's authority; absent where that is a public one."""
        return self.root / "ca.pem"

    @property
    def data(self) -> Path:
        """Return the agent's folder."""
        return self.root / "data"

    def read(self) -> Membership | None:
        """Return what is remembered; None when this machine has not joined.

        Raises:
            Misconfigured: the file is not what was written.
        """
        stored = read_json(self.membership)
        if stored is None and not self.membership.exists():
            return None
        if stored is None or set(stored) != {field.name for field in fields(Membership)}:
            raise Misconfigured(
                f"{self.membership} is damaged",
                suggestions=("delete it and join again with a new token",),
            )
        return Membership(**stored)

    def belongs_to(self, node: str) -> bool:
        """Tell whether this machine has joined under that name."""
        member = self.read()
        return member is not None and member.node == node


def join(folder: NodeFolder, url: str, text: str, node: str) -> Membership:
    """Enrol this machine under a name by a one-time token; a node that joins again gets a new key.

    Raises:
        Misconfigured: the URL is not https, or the server is not the one that made the token.
        Forbidden: the token is not valid (any more).
        InvalidState: the name, or this machine's key, belongs to another node.
        Unreachable: no server answers.
    """
    token = parse_enrolment_token(text.strip())
    if token is None:
        raise Forbidden(
            "this is not an enrolment token; they look like fze_<id>_...",
            suggestions=("make one where the cluster runs: frenzy node token",),
        )
    if urlsplit(url).scheme != "https" or not urlsplit(url).hostname:
        raise Misconfigured(
            f"{url!r} is not an https URL: keys and tokens do not travel in the clear",
            suggestions=("the cluster says its URL: frenzy up --listen ADDRESS",),
        )
    folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    base = url.rstrip("/")
    authority = _trusted_authority(base, token)
    key = folder.next_key if folder.belongs_to(node) else folder.key
    request = EnrolRequest(token=token.text, node=node, public_key=keys.load_or_make(key))
    try:
        answer = _enrol(base, request, authority)
    except InvalidState as error:
        still = (f"this machine's key is {key}", "the token was not used up: use it again")
        raise InvalidState(error.message, suggestions=(*error.suggestions, *still)) from None
    member = Membership(
        node=answer.node, url=base, nats_url=answer.nats_url, blobs_token=answer.token
    )
    if authority:
        write_private(folder.authority, authority)
    if key != folder.key:
        rename(key, folder.key)
    write_json(folder.membership, asdict(member))
    return member


def agent_environment(
    folder: NodeFolder, member: Membership, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the agent; ``settings`` are its further FRENZY_* variables."""
    authority = {}
    if folder.authority.exists():
        authority = {
            "FRENZY_NATS_CA": str(folder.authority),
            "FRENZY_BLOBS_CA": str(folder.authority),
        }
    return {
        **child_environment(folder.root / "tmp"),
        "FRENZY_NODE": member.node,
        "FRENZY_NATS_URL": member.nats_url,
        "FRENZY_NATS_NKEY": str(folder.key),
        "FRENZY_BLOBS": member.url,
        "FRENZY_BLOBS_TOKEN": member.blobs_token,
        "FRENZY_DATA_DIR": str(folder.data),
        "FRENZY_ADDRESS": address_towards(member.url),
        **authority,
        **settings,
    }


def become_agent(folder: NodeFolder, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the node's agent: signals and logs are its own."""
    names = extras.missing()
    if names:
        raise extras.not_installed(names)
    for path in (folder.data, folder.root / "tmp"):
        path.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-P", "-m", "frenzy_orchestrator"]
    os.execve(command[0], command, dict(environment))  # noqa: S606 - our own interpreter


def address_towards(url: str) -> str:
    """Return this machine's address on the way to a server: where other nodes reach it.

    Raises:
        Unreachable: the server's name is unknown, or there is no way to it.
    """
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # sends nothing: it only chooses the way
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Unreachable(f"{parts.hostname}: {error.strerror}") from None


def _trusted_authority(base: str, token: EnrolmentToken) -> str:
    """Fetch the cluster's authority and check that it is the one which the token names."""
    if not token.fingerprint:
        return ""
    try:
        # Trusted by the fingerprint below and by nothing else; no secret is sent.
        got = httpx.get(f"{base}/ca.pem", verify=False, timeout=_TIMEOUT_S)  # noqa: S501
    except httpx.TransportError as error:
        raise Unreachable(f"{base}: {error or type(error).__name__}") from None
    if not got.is_success:
        raise from_answer(got.status_code, got.content)
    try:
        right = fingerprint(got.text) == token.fingerprint
    except ValueError:
        right = False
    if not right:
        raise Misconfigured(
            f"{base} is not the server that made this token: its authority's fingerprint differs",
            suggestions=("check the URL; if it is right, somebody may be listening in",),
        )
    return got.text


def _enrol(base: str, request: EnrolRequest, authority: str) -> EnrolView:
    trust = ssl.create_default_context(cadata=authority) if authority else True
    try:
        got = httpx.post(
            f"{base}/enrol",
            json=request.model_dump(mode="json"),
            verify=trust,
            timeout=_TIMEOUT_S,
        )
    except httpx.TransportError as error:
        raise Unreachable(f"{base}: {error or type(error).__name__}") from None
    if not got.is_success:
        raise from_answer(got.status_code, got.content)
    return EnrolView.decode(got.content)
