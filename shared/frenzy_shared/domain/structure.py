"""How a decoder's block is wired: what its dimensions alone do not tell about memory.

Every supported architecture is one value of ``Structure``, so that formulas ask what a block does
and never which model it belongs to. The values are those of transformers' modeling code.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Norm(StrEnum):
    """What normalises, and in which precision its weight is applied."""

    LAYER = "layer norm"  # torch's fused kernel
    LAYER_FULL = "layer norm in fp32"  # OLMo: without weights
    RMS = "rms norm"  # Llama: fp32 inside, weight in the compute precision
    RMS_PRODUCT = "rms norm, weighted in fp32"  # OLMo 2: then converted
    RMS_SHIFTED = "rms norm, weighted by 1 + w in fp32"  # Gemma


class Residual(StrEnum):
    """What the feed-forward part reads, and where the sums are."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"  # one norm for attention and feed-forward
    PARALLEL_NORMS = "parallel, a norm each"


class QueryKeyNorm(StrEnum):
    """What normalises queries and keys before their positions are added."""

    NONE = "none"
    HEADS = "each head, rms norm"
    LAYER = "each head, layer norm"
    WHOLE = "all heads together, rms norm"


class FusedProjection(StrEnum):
    """Whether one matrix makes queries, keys and values, and how it is cut."""

    NONE = "none"
    SPLIT = "split"  # GPT-2: three parts
    HEADS = "by head"  # GPT-NeoX: three parts of every head
    SLICED = "sliced"  # Phi-3: three slices


class Softmax(StrEnum):
    """In which precision eager attention normalises its scores."""

    FULL = "fp32"
    SCORES = "fp32, and the scores too"
    COMPUTE = "compute precision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture in place of the feed-forward part: ``per_token`` of ``count`` run for a token.

    ``normalises``: the chosen experts' weights are made to add up to one. ``full_weights``: they
    stay fp32, and so does the weighted sum (Mixtral).
    """

    count: int
    per_token: int
    normalises: bool
    full_weights: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The wiring of a block and of the model's two ends.

    ``pre_norms`` and ``post_norms``: norms before, and after, attention and feed-forward.
    ``joins_rotary``: rotated channels are joined to the others of their head, even if there are
    none; ``rotates_first``: before heads and positions change places; ``repeats_tables``: cos and
    sin are repeated for every call. ``alternates_window``: some layers see all tokens.
    ``scales_*``: a multiplication by a constant (Granite, Gemma, OPT). ``caps_*``: soft-capping
    by tanh (Gemma 2). ``eager_only``: transformers has no fused attention for it.
    ``keeps_attended``: the block's code holds attention's output until the block ends.
    ``assumed``: nobody has checked this architecture; it is taken to be like Llama.
    """

    norm: Norm
    gated: bool
    fused: FusedProjection = FusedProjection.NONE
    fused_gate: bool = False
    residual: Residual = Residual.SEQUENTIAL
    pre_norms: bool = True
    post_norms: bool = False
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    softmax: Softmax = Softmax.FULL
    joins_rotary: bool = False
    rotates_first: bool = False
    repeats_tables: bool = False
    alternates_window: bool = False
    keeps_attended: bool = False
    scales_embedding: bool = False
    scales_query: bool = False
    scales_residual: bool = False
    scales_logits: bool = False
    caps_scores: bool = False
    eager_only: bool = False
    caps_logits: bool = False
    assumed: bool = False


GPT2: Final = Structure(
    norm=Norm.LAYER,
    gated=False,
    fused=FusedProjection.SPLIT,
    softmax=Softmax.COMPUTE,
    keeps_attended=True,
)
LLAMA: Final = Structure(norm=Norm.RMS, gated=True)
