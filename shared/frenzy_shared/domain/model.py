"""A model's architecture and a training set-up, as MARP's formulas need them."""

from dataclasses import dataclass
from enum import StrEnum

from frenzy_shared.domain.plan import ActivationCheckpointing, Precision


class Family(StrEnum):
    """Block family: decides the per-layer formula."""

    GPT2 = "gpt2"
    LLAMA = "llama"


class Attention(StrEnum):
    """How attention is computed."""

    EAGER = "eager"
    SDPA = "sdpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """Dimensions of a decoder. Counts are elements; ``max_positions`` only where learned."""

    family: Family
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int | None
    tied_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    activation: str  # "gelu_new", "silu", ...

    @property
    def num_parameters(self) -> int:
        """Return the trainable parameters, embeddings included."""
        h, kv = self.hidden_size, self.num_kv_heads * self.head_dim
        q = self.num_heads * self.head_dim
        attention = h * q + 2 * h * kv + q * h
        attention += (q + 2 * kv + h) if self.attention_bias else 0
        gated = self.family is Family.LLAMA
        mlp = (3 if gated else 2) * h * self.intermediate_size
        if self.mlp_bias:
            mlp += (2 if gated else 1) * self.intermediate_size + h
        norm = h if gated else 2 * h
        embeddings = self.vocab_size * h * (1 if self.tied_embeddings else 2)
        embeddings += (self.max_positions or 0) * h
        return self.num_layers * (attention + mlp + 2 * norm) + norm + embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What the user fixed; ``None`` or empty means that MARP decides."""

    kinds: tuple[str, ...] = ()
    min_device_memory_bytes: int | None = None
    max_device_memory_bytes: int | None = None
    device_count: int | None = None
    max_devices: int | None = None
    zero_stage: int | None = None
    micro_batch_size: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    precision: Precision | None = None
    activation_checkpointing: ActivationCheckpointing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """One training run without the choices that a plan makes.

    ``sequence_length`` in tokens; ``global_batch_size`` in sequences per optimizer step.
    ``optimizer_steps`` is ``None`` when the length of the run is not known.
    """

    model: ModelArchitecture
    sequence_length: int
    global_batch_size: int
    optimizer_steps: int | None
    optimizer: str  # "adamw"
    attention: Attention
    learning_rate: float
    pins: Pins
    weight_decay: float = 0.0
    gradient_clipping: float | None = 1.0  # None: gradients are not clipped
