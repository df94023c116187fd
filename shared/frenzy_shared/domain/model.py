"""A model's architecture and a training set-up, as MARP's formulas need them."""

from dataclasses import dataclass
from enum import StrEnum

from frenzy_shared.domain.adapters import Adapters, Role
from frenzy_shared.domain.plan import ActivationCheckpointing, Loss, Offload, Precision
from frenzy_shared.domain.structure import Experts, Norm, QueryKeyNorm, Residual, Structure


class Family(StrEnum):
    """Architectures whose structure was checked against transformers, by their model_type."""

    GEMMA = "gemma"
    GEMMA2 = "gemma2"
    GPT2 = "gpt2"
    GPTJ = "gptj"
    GPT_NEOX = "gpt_neox"
    GRANITE = "granite"
    LLAMA = "llama"
    MISTRAL = "mistral"
    MIXTRAL = "mixtral"
    OLMO = "olmo"
    OLMO2 = "olmo2"
    OLMO3 = "olmo3"
    OLMOE = "olmoe"
    OPT = "opt"
    PHI = "phi"
    PHI3 = "phi3"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    QWEN3_MOE = "qwen3_moe"
    STABLELM = "stablelm"
    STARCODER2 = "starcoder2"
    OTHER = "other"  # a decoder whose structure is assumed


class Attention(StrEnum):
    """How attention is computed."""

    EAGER = "eager"
    SDPA = "sdpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """Dimensions of a decoder. Counts are elements; ``max_positions`` only where learned.

    ``rotary_dim`` channels of a head are rotated, 0 without rotary embedding. From
    ``sliding_window`` tokens on, attention takes an explicit mask. ``attention_bias`` is that of
    queries, keys and values, ``output_bias`` that of attention's output. ``intermediate_size`` is
    that of one expert where there are ``experts``.
    """

    family: Family
    structure: Structure
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int | None
    rotary_dim: int
    tied_embeddings: bool
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    activation: str  # "gelu_new", "silu", ...
    head_bias: bool = False
    sliding_window: int | None = None
    experts: Experts | None = None
    adapters: Adapters | None = None  # what is trained instead of the weights

    @property
    def query_size(self) -> int:
        """Return the channels of all queries of a token."""
        return self.num_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Return the channels of all keys, or values, of a token."""
        return self.num_kv_heads * self.head_dim

    @property
    def norms_per_layer(self) -> int:
        """Return how many norms of the hidden size a layer has."""
        wiring = self.structure
        if wiring.residual is Residual.PARALLEL:
            return 1
        return 2 * wiring.pre_norms + 2 * wiring.post_norms

    @property
    def layer_matrix_parameters(self) -> int:
        """Return the parameters of one layer's matrices, all experts included."""
        return self._matrix_parameters(1 if self.experts is None else self.experts.count)

    @property
    def active_matrix_parameters(self) -> int:
        """Return the parameters of one layer's matrices that a token is multiplied with."""
        return self._matrix_parameters(1 if self.experts is None else self.experts.per_token)

    @property
    def num_parameters(self) -> int:
        """Return the parameters, embeddings included."""
        h, inner = self.hidden_size, self.intermediate_size
        norm = {Norm.LAYER: 2 * h, Norm.LAYER_FULL: 0}.get(self.structure.norm, h)
        biases = (self.query_size + 2 * self.key_size) if self.attention_bias else 0
        biases += h if self.output_bias else 0
        if self.mlp_bias:
            biases += (2 if self.structure.gated else 1) * inner + h
        layer = self.layer_matrix_parameters + biases + self.norms_per_layer * norm
        layer += self._query_key_norm_parameters
        embeddings = self.vocab_size * h * (1 if self.tied_embeddings else 2)
        embeddings += self.vocab_size if self.head_bias else 0
        embeddings += (self.max_positions or 0) * h
        return self.num_layers * layer + norm + embeddings

    def chunk_length(self, length: int) -> int:
        """Return the positions of a sequence whose logits a chunked loss has at a time.

        Those of one chunk are as large as the hidden states of the whole sequence.
        """
        return max(1, -(-length * self.hidden_size // self.vocab_size))

    @property
    def adapter_parameters(self) -> int:
        """Return the parameters of all adapters of one layer."""
        if self.adapters is None:
            return 0
        hidden, inner = self.hidden_size, self.intermediate_size
        widths = {
            Role.QUERY: hidden + self.query_size,
            Role.KEY: hidden + self.key_size,
            Role.VALUE: hidden + self.key_size,
            Role.FUSED: hidden + self.query_size + 2 * self.key_size,
            Role.OUTPUT: self.query_size + hidden,
            Role.GATE: hidden + inner,
            Role.UP: hidden + inner,
            Role.GATE_AND_UP: hidden + 2 * inner,
            Role.DOWN: inner + hidden,
        }
        return self.adapters.rank * sum(widths[role] for role in self.adapters.roles)

    @property
    def num_trained_parameters(self) -> int:
        """Return the parameters that get gradients: the adapters', where there are any."""
        if self.adapters is None:
            return self.num_parameters
        return self.num_layers * self.adapter_parameters

    def _matrix_parameters(self, experts: int) -> int:
        attention = 2 * self.query_size + 2 * self.key_size
        feed_forward = experts * (3 if self.structure.gated else 2) * self.intermediate_size
        router = 0 if self.experts is None else self.experts.count
        return self.hidden_size * (attention + feed_forward + router)

    @property
    def _query_key_norm_parameters(self) -> int:
        match self.structure.query_key_norm:
            case QueryKeyNorm.NONE:
                return 0
            case QueryKeyNorm.HEADS:
                return 2 * self.head_dim
            case QueryKeyNorm.LAYER:
                return 4 * self.head_dim
            case QueryKeyNorm.WHOLE:
                return self.query_size + self.key_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What the user fixed; ``None`` or empty means that MARP decides."""

    kinds: tuple[str, ...] = ()
    exclude_kinds: tuple[str, ...] = ()
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
    loss: Loss | None = None
    offload: Offload | None = None


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
    own_loss: bool = False  # a script computes it, in a way that is taken to be the usual one
