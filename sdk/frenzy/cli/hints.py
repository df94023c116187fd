"""What to do about an error, in the words of the command line: the API's hints speak HTTP."""

from collections.abc import Iterator
from typing import Final

from frenzy_shared.errors import FrenzyError

_INSTEAD: Final = {
    "not_found": ("see the jobs: frenzy list",),
    "blob_missing": ("submit again: what the server lacks is sent with it",),
    "unauthenticated": (
        "set FRENZY_TOKEN to a token of that server",
        "on this machine: frenzy up (it stores a token)",
    ),
}
_PARAMETER: Final = "force_queue="  # of the API, in its hint about waiting for nodes
WAIT_FOR_NODES: Final = "wait for nodes that fit: frenzy submit --force-queue"


def hints(error: FrenzyError) -> tuple[str, ...]:
    """Return what a person at the command line can do."""
    return tuple(dict.fromkeys(_hints(error)))


def _hints(error: FrenzyError) -> Iterator[str]:
    if error.code in _INSTEAD:
        yield from _INSTEAD[error.code]
        return
    for hint in error.suggestions:
        yield WAIT_FOR_NODES if _PARAMETER in hint else hint
