"""Peaks put together from what a trace measured of one layer and of the ends of a model.

The same moments as the predictor's, of any depth and any sharding; only where the formulas would
write a block down, its coefficients come from the real module. ZeRO-3 on several ranks gathers
weights inside a layer, which a layer's trace does not have: the engine's trace does.
"""

from dataclasses import dataclass

import numpy as np

from frenzy_marp.core.memory.gradients import Gradients
from frenzy_marp.core.memory.moments import Anatomy, activations, held, moments_of
from frenzy_marp.core.memory.predictor import Peak, Sharding
from frenzy_marp.core.memory.program import Profile
from frenzy_marp.core.memory.states import States, states
from frenzy_shared.domain.plan import MemoryTerm
from frenzy_shared.errors import InvalidSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer, or the ends: bytes beside weights and gradients; ``parameters`` are elements.

    ``points`` are peaks, then handings, as in ``program.Profile``.
    """

    kept: int
    forward_peak: int
    points: tuple[int, ...]
    parameters: tuple[int, ...]

    def profile(self, element: int) -> Profile:
        """Return it as the predictor's tables have it, for one micro-batch."""
        return Profile(
            np.array([self.kept], dtype=np.int64),
            np.array([self.forward_peak], dtype=np.int64),
            np.array(self.points, dtype=np.int64)[:, None],
            tuple(count * element for count in self.parameters),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """What a trace found for one micro-batch; ``head`` parameters of the ends come first."""

    layer: Part
    ends: Part
    head: int

    def peaks(self, layers: int, sharding: Sharding, *, element: int, bucket: int) -> list[Peak]:
        """Return the peak of every moment of a model of ``layers`` layers.

        Raises:
            InvalidSpec: the sharding gathers weights inside a layer.
        """
        if sharding.gathers:
            raise InvalidSpec("a layer's trace has no gathered weights: trace the engine")
        anatomy = Anatomy(
            layers,
            len(self.layer.parameters),
            self.head,
            len(self.ends.parameters) - self.head,
        )
        sizes = self._elements(layers) * element
        track = Gradients(sizes, element, bucket * element).track(
            sharding.stage, sharding.ranks, accumulates=sharding.accumulates
        )
        found = states(
            sizes // element,
            stage=sharding.stage,
            ranks=sharding.ranks,
            element=element,
            bucket=bucket,
            persistence_threshold=0,
            cuda=sharding.cuda,
        )
        kept = int(track.walk.before[-1]) if found.step_keeps_gradients else 0
        holding = held(track.walk, anatomy, waiting=0)
        gradients = holding.with_step(
            track.after, kept + found.step_gradients + found.step_temporaries
        )
        none = np.zeros(1, dtype=np.int64)
        beside = activations(
            self.layer.profile(element),
            self.ends.profile(element),
            anatomy,
            holding.rows,
            common=none,
            never_saved=none,
            forward_only=none,
        )
        working = beside.sizes[:, 0]
        # A trace does not tell the last layer's forward from the loss: both are in the second.
        parts = moments_of(anatomy, holding.rows)[1:]
        return [_highest(name, points, found, gradients, working) for name, points in parts]

    def parameters(self, layers: int) -> int:
        """Return the elements of a model of ``layers`` layers."""
        return sum(self.ends.parameters) + layers * sum(self.layer.parameters)

    def _elements(self, layers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        ends = self.ends.parameters
        order = (*ends[: self.head], *(self.layer.parameters * layers), *ends[self.head :])
        return np.array(order, dtype=np.int64)


def _highest(
    name: str,
    points: slice,
    found: States,
    gradients: np.ndarray[tuple[int], np.dtype[np.int64]],
    working: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Peak:
    point = points.start + int((gradients + working)[points].argmax())
    terms = {
        "weights": found.weights,
        "fp32 master weights": found.master,
        "Adam moments": found.moments,
        "ZeRO buffers": found.buffers,
        "gradients and step": int(gradients[point]),
        "activations (traced)": int(working[point]),
    }
    kept = tuple(MemoryTerm(name=term, size_bytes=size) for term, size in terms.items() if size)
    return Peak(sum(term.size_bytes for term in kept), name, kept)
