"""The moments of a training step, as a product of two tables.

At every point of a step a rank holds gradients, which depend on how the engine shards, and
activations, which depend on the micro-batch. So the bytes at all points are the sum of a column
per sharding (``Held``) and a table with a column per micro-batch (``Activations``), and the peak
is the highest row: a matrix product in which sum and maximum stand for product and sum.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from frenzy_marp.core.memory.gradients import Walk
from frenzy_marp.core.memory.program import Profile
from frenzy_marp.core.memory.sizes import Bytes

_FORWARD: Final = "the last layer's forward"
_LOSS: Final = "the loss"
_LAYER: Final = "a layer's backward"
_EMBEDDING: Final = "the embedding's backward"
_REDUCTION: Final = "gradient reduction"
_STEP: Final = "the optimizer step"


@dataclass(frozen=True, slots=True)
class Anatomy:
    """How many layers a model has, and how many parameters in each and at its ends."""

    layers: int
    per_layer: int
    in_head: int  # final norm and vocabulary projection: the first that backward reaches
    in_embedding: int

    @property
    def points_of_layer(self) -> int:
        """Return the points of a layer's backward: a peak more than there are hand-overs."""
        return 2 * self.per_layer + 1


@dataclass(frozen=True, slots=True)
class Held:
    """Gradient bytes at every point, for one walk through backward.

    ``rows`` are the layers, in the order that backward reaches them, whose points are listed: no
    other can be the highest. The last two points, gradient reduction and the optimizer step, are
    for ``with_step`` to fill in.
    """

    rows: tuple[int, ...]
    sizes: Bytes

    def with_step(self, reduction: int, step: int) -> Bytes:
        """Return the sizes of all points."""
        sizes = self.sizes.copy()
        sizes[-2:] = reduction, step
        return sizes


@dataclass(frozen=True, slots=True)
class Activations:
    """Saved activations and working memory at every point (rows) of each micro-batch.

    ``common`` are inputs and what all layers share, there at every point.
    """

    saved: Bytes
    work: Bytes
    common: Bytes
    sizes: Bytes  # all of it


def held(walk: Walk, anatomy: Anatomy, *, waiting: int) -> Held:
    """Arrange a walk by points.

    ``waiting`` is a tied weight's first gradient, there during every layer's backward.
    """
    count, begin = anatomy.per_layer, anatomy.in_head
    end = begin + anatomy.layers * count
    before, handing = walk.before, walk.handing
    layers = np.empty((anatomy.layers, anatomy.points_of_layer), dtype=np.int64)
    layers[:, :count] = before[begin:end].reshape(anatomy.layers, count)
    layers[:, count] = before[begin + count : end + 1 : count]
    layers[:, count + 1 :] = handing[begin:end].reshape(anatomy.layers, count)
    rows = _highest_rows(layers)
    parts = (
        [walk.start],
        before[: begin + 1],
        handing[:begin],
        [walk.start],
        (layers[list(rows)] + waiting).ravel(),
        before[end:],
        handing[end:],
        [0, 0],
    )
    return Held(rows, np.concatenate(parts))


def activations(
    block: Profile,
    ends: Profile,
    anatomy: Anatomy,
    rows: tuple[int, ...],
    *,
    common: Bytes,
    never_saved: Bytes,
    forward_only: Bytes,
) -> Activations:
    """Arrange what one way of checkpointing holds by points; ``rows`` as in ``Held``.

    ``never_saved`` is what the first layer saves less than the others, ``forward_only`` a layer's
    input, and what forward alone keeps.
    """
    head, last = anatomy.in_head, anatomy.in_head + anatomy.in_embedding
    none = np.zeros((2, len(block.kept)), dtype=np.int64)
    work: tuple[Bytes, ...] = (
        (forward_only + block.forward_peak)[None],
        *_at_loss(ends, anatomy),
        np.tile(block.points, (len(rows), 1)),
        ends.points[head : last + 1],
        ends.points[last + 1 + head :],
        none,
    )
    every, point = anatomy.layers, anatomy.points_of_layer
    remaining = np.repeat(
        [every - 1, every, *(every - 1 - row for row in rows), 0],
        [1, 2 * head + 2, *(point for _ in rows), 2 * anatomy.in_embedding + 3],
    )
    saved = np.multiply.outer(remaining, block.kept)
    saved -= np.multiply.outer(remaining > 0, never_saved)
    working = np.concatenate(work)
    return Activations(saved, working, common, saved + working + common)


def points_of_loss(anatomy: Anatomy) -> slice:
    """Return which points are at the loss; the one before them is a layer's forward."""
    return slice(1, 2 * anatomy.in_head + 3)


def loss_sizes(block: Profile, ends: Profile, anatomy: Anatomy, *, common: Bytes) -> Bytes:
    """Return what ``activations`` has at the points of the loss, and nothing else.

    ``common`` as there, less what the first layer never saves.
    """
    work = _at_loss(ends, anatomy)
    return np.concatenate(work) + (anatomy.layers * block.kept + common)


def moments_of(anatomy: Anatomy, rows: tuple[int, ...]) -> list[tuple[str, slice]]:
    """Return the moments of a step in order, each with the points that belong to it."""
    counts = (
        (_FORWARD, 1),
        (_LOSS, 2 * anatomy.in_head + 2),
        (_LAYER, len(rows) * anatomy.points_of_layer),
        (_EMBEDDING, 2 * anatomy.in_embedding + 1),
        (_REDUCTION, 1),
        (_STEP, 1),
    )
    ends = list(accumulate(count for _, count in counts))
    return [
        (name, slice(end - count, end)) for (name, count), end in zip(counts, ends, strict=True)
    ]


def _at_loss(ends: Profile, anatomy: Anatomy) -> tuple[Bytes, ...]:
    """Return backward's points before the layers, and the forward peak, of the model's ends."""
    head, last = anatomy.in_head, anatomy.in_head + anatomy.in_embedding
    # After the last parameter of the head nothing is made before the layers' backward.
    ending = last + head if head and anatomy.in_embedding else head
    return (
        ends.points[[*range(head), ending]],
        ends.points[last + 1 : last + 1 + head],
        ends.forward_peak[None],
    )


def _highest_rows(layers: Bytes) -> tuple[int, ...]:
    """Return the rows that can be the highest, given that a later row has less saved beside it.

    A row that nowhere exceeds all earlier ones cannot be. Where gradients grow by the same bytes
    with every layer, the sum with what is saved is highest at one end.
    """
    if len(layers) == 1:
        return (0,)
    grown = layers[1:] - layers[:-1]
    if (grown == grown[0]).all():
        return (0, len(layers) - 1) if grown[0].any() else (0,)
    exceeded = (layers[1:] > np.maximum.accumulate(layers, axis=0)[:-1]).any(axis=1)
    return (0, *(np.flatnonzero(exceeded) + 1).tolist())
