"""What the gateway asks of whoever holds the keys of secrets."""

from typing import Protocol

from frenzy_shared.state.secrets import SecretRecord


class CannotOpen(Exception):
    """A secret cannot be opened: its key is gone, or it was changed."""


class Seal(Protocol):
    """Seals values for a place (see ``place_of``), and opens them there only."""

    def seal(self, value: str, place: str) -> str:
        """Return ``value`` as only the keys' holder can read it."""
        ...

    def open(self, sealed: str, place: str) -> str:
        """Return the value; ``CannotOpen`` when that is not possible."""
        ...

    def is_current(self, sealed: str) -> bool:
        """Tell whether the newest key sealed it."""
        ...


def place_of(project: str, name: str) -> str:
    """Return the place of a secret, which its seal is bound to."""
    return f"{project}/{name}"


def opened(seal: Seal, secret: SecretRecord) -> str:
    """Return a secret's value; ``CannotOpen``, naming it, when that is not possible."""
    try:
        return seal.open(secret.sealed, place_of(secret.project, secret.name))
    except CannotOpen as error:
        raise CannotOpen(
            f"secret {secret.name!r} of project {secret.project} cannot be opened: {error}; "
            f"set it again: frenzy secret set {secret.name} --project {secret.project}"
        ) from None
