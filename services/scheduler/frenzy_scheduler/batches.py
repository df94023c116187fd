"""Cut work into pieces that may be in flight at once."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Return the items in order, at most ``size`` at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
