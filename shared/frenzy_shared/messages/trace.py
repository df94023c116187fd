"""What ``python -m frenzy_trainer.trace`` is asked, and what it answers: JSON on its pipes.

A trace runs the real code with tensors that have sizes but no contents, and counts them. Sizes
are bytes of one rank.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from frenzy_shared.domain.adapters import Adapters
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_shared.messages.base import Wire

MAX_DOCUMENT_BYTES: Final = 1 << 20  # of a request: a config.json has a few KiB
DEPTH_FIELDS: Final = ("num_hidden_layers", "n_layer", "num_layers")  # as configurations call it

_Count = Annotated[int, Field(ge=1, le=2**24)]


class Factory(Wire):
    """A user's own code that returns the module to train; ``folder`` is where it is imported from.

    Only the user's side runs it: ``--allow-code``.
    """

    target: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=256)]
    folder: str


class EngineQuestion(Wire):
    """Run DeepSpeed's engine as ``rank`` of ``ranks``, for ``steps`` optimizer steps.

    Without a ``rank`` it is the one that holds most.

    ``config`` is its configuration. Where it says "auto", reduce_bucket_size becomes the elements
    of the largest layer, and stage3_param_persistence_threshold those of the largest vector.
    """

    config: dict[str, Any]
    ranks: _Count
    rank: Annotated[int, Field(ge=0)] | None = None
    steps: Literal[1, 2] = 2


class TraceRequest(Wire):
    """One model, one micro-batch, and the engine that trains it.

    Without an engine the layers are measured alone, on models of 2, 3 and 4 of them.
    """

    model: dict[str, Any] | None = None
    factory: Factory | None = None
    sequence_length: _Count
    micro_batch_size: _Count
    precision: Precision
    attention: Attention = Attention.SDPA
    checkpointing: ActivationCheckpointing = ActivationCheckpointing.NONE
    adapters: Adapters | None = None
    loss_chunk: _Count | None = None  # positions of the loss at once; None: all
    engine: EngineQuestion | None = None


class TracedTerm(Wire):
    """Bytes at one moment, by what made them."""

    name: str
    size_bytes: int


class TracedMoment(Wire):
    """The highest allocated bytes in one part of a run."""

    name: str
    size_bytes: int
    terms: tuple[TracedTerm, ...]


class EngineTrace(Wire):
    """What DeepSpeed's engine took; ``config`` is what it was given, "auto" replaced.

    ``host_bytes`` are the highest in the node's RAM, where the engine offloads.
    """

    parameters: int
    rank: int
    moments: tuple[TracedMoment, ...]
    config: dict[str, Any]
    host_bytes: int = 0


class TracedPart(Wire):
    """What a layer, or all that is not a layer, holds beside weights and gradients.

    ``parameters`` are elements, in the order in which backward hands gradients over. ``peaks[k]``
    is the highest count while ``k`` of them have been handed over, ``handing[k]`` the count at the
    moment when the next one is.
    """

    kept_bytes: int
    forward_peak_bytes: int
    parameters: tuple[int, ...]
    peaks: tuple[int, ...]
    handing: tuple[int, ...]


class LayersTrace(Wire):
    """Coefficients from which a model of any depth is put together.

    The first ``head_parameters`` of ``ends`` come before the layers in backward. ``error`` is how
    far the highest count of a model of 4 layers is from what those of 2 and 3 say, relative.
    """

    layer: TracedPart
    ends: TracedPart
    head_parameters: int
    error: float


class TraceAnswer(Wire):
    """The result, or why there is none. ``versions`` are those of the libraries that were run."""

    engine: EngineTrace | None = None
    layers: LayersTrace | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0
    cached: bool = False
    error_code: str = ""
    error: str = ""
    suggestions: tuple[str, ...] = ()
