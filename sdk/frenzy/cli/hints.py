"""What to do about an error, in the words of the command line: the API's hints speak HTTP."""

from collections.abc import Iterator
from typing import Final

from frenzy_shared.errors import FrenzyError

_INSTEAD: Final = {
    "blob_missing": ("submit again: what the server lacks is sent with it",),
    "unauthenticated": (
        "set FRENZY_TOKEN to a token of that server",
        "on this machine: frenzy up (it stores a token)",
    ),
}
WAIT_FOR_NODES: Final = "wait for nodes that fit: frenzy submit --force-queue"
_WORDS: Final = {  # what a hint of the API names -> the command that is meant
    "force_queue=": WAIT_FOR_NODES,
    "GET /api/v1/jobs": "see the jobs: frenzy list",
}


def hints(error: FrenzyError) -> tuple[str, ...]:
    """Return what a person at the command line can do."""
    return tuple(dict.fromkeys(_hints(error)))


def _hints(error: FrenzyError) -> Iterator[str]:
    if error.code in _INSTEAD:
        yield from _INSTEAD[error.code]
        return
    for hint in error.suggestions:
        yield next((ours for theirs, ours in _WORDS.items() if theirs in hint), hint)
