"""The identities that a NATS server knows: one file, and what nats-server includes from it.

The file beside the server is the truth about who may connect: losing the store must not lock
nodes out. Whoever changes it holds its lock; the server's keeper sees the change and reloads.
"""

import fcntl
import hmac
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from frenzy_shared.bus.nats_permissions import BusRole, Permissions, permissions
from frenzy_shared.domain.ids import is_name
from frenzy_shared.errors import Forbidden, InvalidState, Misconfigured
from frenzy_shared.files import write_private

T = TypeVar("T")

_PUBLIC_KEY: Final = re.compile("U[A-Z2-7]{55}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One user of the bus. ``public_key`` is its nkey; its seed never leaves its machine."""

    role: BusRole
    name: str = ""  # of a node or an integration
    project: str = ""  # that an integration reads; empty: all
    events: tuple[str, ...] = ()  # kinds that it reads; none: all
    public_key: str
    created_ms: int = 0
    token_id: str = ""  # of the API token that a node fetches blobs with


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A one-time token with which a node makes itself known. Only its secret's hash is kept."""

    id: str
    secret_sha256: str
    node: str = ""  # the only name that may use it; empty: any new name
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Users:
    identities: tuple[Identity, ...] = ()
    invitations: tuple[Invitation, ...] = ()


def is_public_key(text: str) -> bool:
    """Tell whether a text has the form of a user's public nkey."""
    return _PUBLIC_KEY.fullmatch(text) is not None


class UsersFile:
    """Identities and invitations in ``path`` (JSON); for nats-server ``path`` with ``.conf``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def configuration(self) -> Path:
        """Return the file that nats-server's configuration includes."""
        return self._path.with_suffix(".conf")

    def identities(self) -> tuple[Identity, ...]:
        """Return all identities; none when there is no file yet.

        Raises:
            Misconfigured: the file is not what was written.
        """
        return self._read().identities

    def put(self, *identities: Identity) -> None:
        """Add identities; each replaces the one of its role and name.

        Raises:
            InvalidState: a key belongs to another identity.
        """
        self._change(lambda users: (replace(users, identities=_with(users, identities)), None))

    def add(self, identity: Identity) -> None:
        """Add an identity of a new name.

        Raises:
            InvalidState: the name is taken, or its key belongs to another identity.
        """

        def admit(users: _Users) -> tuple[_Users, None]:
            if any((o.role, o.name) == (identity.role, identity.name) for o in users.identities):
                raise InvalidState(
                    f"{identity.role} {identity.name} is already known",
                    suggestions=("choose another name, or rotate its key",),
                )
            return replace(users, identities=_with(users, (identity,))), None

        self._change(admit)

    def remove(self, role: BusRole, name: str) -> bool:
        """Forget an identity and tell whether it was there; the server ends its connections."""

        def forget(users: _Users) -> tuple[_Users, bool]:
            kept = tuple(one for one in users.identities if (one.role, one.name) != (role, name))
            return replace(users, identities=kept), len(kept) != len(users.identities)

        return self._change(forget)

    def invite(self, invitation: Invitation, now_ms: int) -> None:
        """Keep an invitation, and forget those that have expired."""

        def keep(users: _Users) -> tuple[_Users, None]:
            valid = tuple(one for one in users.invitations if one.expires_ms > now_ms)
            return replace(users, invitations=(*valid, invitation)), None

        self._change(keep)

    def accept(self, token: str, secret_sha256: str, node: Identity, now_ms: int) -> None:
        """Make a node known to the server, once per invitation.

        Raises:
            Forbidden: no such invitation: unknown, wrong, used, expired, for another node.
            InvalidState: the name is taken (the invitation does not name it), or the key is.
        """

        def enrol(users: _Users) -> tuple[_Users, None]:
            invitation = _invitation(users, token, secret_sha256, node.name, now_ms)
            taken = any((o.role, o.name) == (node.role, node.name) for o in users.identities)
            if taken and invitation.node != node.name:
                raise InvalidState(
                    f"node {node.name} is already known",
                    suggestions=(
                        "choose another name with --name",
                        f"to replace its key: frenzy node token --node {node.name}",
                    ),
                )
            left = tuple(one for one in users.invitations if one.id != invitation.id)
            return _Users(identities=_with(users, (node,)), invitations=left), None

        self._change(enrol)

    def _change(self, change: Callable[[_Users], tuple[_Users, T]]) -> T:
        with self._locked():
            before = self._read()
            after, answer = change(before)
            if after != before:
                write_private(self._path, json.dumps(asdict(after), indent=1) + "\n")
            # Last, because the server's keeper looks at this one. Another release has other rules
            # for the same identities.
            block = users_block(after.identities)
            if not self.configuration.exists() or self.configuration.read_text() != block:
                write_private(self.configuration, block)
            return answer

    def _read(self) -> _Users:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            return _Users(
                identities=tuple(
                    Identity(
                        **{
                            **one,
                            "role": BusRole(one["role"]),
                            "events": tuple(one.get("events", ())),
                        }
                    )
                    for one in stored["identities"]
                ),
                invitations=tuple(Invitation(**one) for one in stored["invitations"]),
            )
        except FileNotFoundError:
            return _Users()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise Misconfigured(f"{self._path} cannot be read: {error!r}") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def users_block(identities: Sequence[Identity]) -> str:
    """Return nats-server's authorization block.

    Raises:
        ValueError: a name or a key could change the meaning of the block.
    """
    users = "\n".join(f"    {_user(one)}" for one in identities)
    return f"authorization {{\n  users: [\n{users}\n  ]\n}}\n"


def _with(users: _Users, more: Sequence[Identity]) -> tuple[Identity, ...]:
    kept = {(one.role, one.name): one for one in (*users.identities, *more)}
    owners: dict[str, Identity] = {}
    for one in kept.values():
        other = owners.setdefault(one.public_key, one)
        if other is not one:
            raise InvalidState(
                f"the key of {one.role} {one.name} already belongs to {other.role} {other.name}",
                suggestions=(
                    "a second node on a machine has a folder and key of its own: --data DIR",
                ),
            )
    return tuple(kept.values())


def _invitation(
    users: _Users, token: str, secret_sha256: str, node: str, now_ms: int
) -> Invitation:
    """Return the invitation that a token proves; why one does not is told to nobody."""
    for one in users.invitations:
        right = hmac.compare_digest(one.secret_sha256, secret_sha256)
        if one.id == token and right and one.expires_ms > now_ms and one.node in ("", node):
            return one
    raise Forbidden(
        "the enrolment token is not valid: unknown, used, expired or for another node",
        suggestions=("make a new one: frenzy node token",),
    )


def _user(identity: Identity) -> str:
    for text in (identity.name, identity.project):
        if text and not is_name(text):
            raise ValueError(f"{text!r} is not a name")
    if not is_public_key(identity.public_key):
        raise ValueError(f"{identity.public_key!r} is not a public nkey")
    allowed = permissions(identity.role, identity.name, identity.project)
    return f"{{nkey: {identity.public_key}, permissions: {_permissions(allowed)}}}"


def _permissions(allowed: Permissions) -> str:
    publish = {"allow": list(allowed.publish)}
    if allowed.never_publish:
        publish["deny"] = list(allowed.never_publish)
    rules: dict[str, object] = {"publish": publish, "subscribe": list(allowed.subscribe)}
    if allowed.answers:
        rules["allow_responses"] = {"max": 1, "expires": "1m"}
    return json.dumps(rules)  # the server's format takes JSON
