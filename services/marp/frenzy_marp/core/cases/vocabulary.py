"""The closed words of a measured case. A word outside them is an error, never a guess."""

from enum import StrEnum


class Family(StrEnum):
    """Block family of the model: it decides the per-layer formula."""

    GPT2 = "gpt2"
    GPT_NEOX = "gpt_neox"
    OPT = "opt"
    BLOOM = "bloom"
    BERT = "bert"
    T5 = "t5"
    LLAMA = "llama"
    MISTRAL = "mistral"
    QWEN = "qwen"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    GEMMA = "gemma"
    GEMMA2 = "gemma2"
    PHI = "phi"
    FALCON = "falcon"
    STABLELM = "stablelm"
    STARCODER = "starcoder"
    GPT_BIGCODE = "gpt_bigcode"
    MIXTRAL = "mixtral"
    GRANITE_MOE = "granite_moe"
    DEEPSEEK = "deepseek"
    MEGATRON_GPT = "megatron_gpt"
    MEGATRON_MOE = "megatron_moe"
    GLM = "glm"
    OTHER = "other"


class Framework(StrEnum):
    """Training framework: it decides kernels, buffers and what lives from step to step."""

    HF_TRAINER = "hf_trainer"
    DEEPSPEED = "deepspeed"
    MEGATRON = "megatron"
    MEGATRON_DEEPSPEED = "megatron_deepspeed"
    NANOTRON = "nanotron"
    TORCHTITAN = "torchtitan"
    TORCHTUNE = "torchtune"
    LITGPT = "litgpt"
    THUNDER = "thunder"
    TORCHAO = "torchao"
    SWIFT = "swift"
    LIGHTNING = "lightning"
    COLOSSALAI = "colossalai"
    OTHER = "other"


class Metric(StrEnum):
    """What a reading counts."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    ACTIVE = "active"
    DEVICE = "device"
    UNKNOWN = "unknown"


class RankOf(StrEnum):
    """Whose reading it is."""

    RANK0 = "rank0"
    MAX = "max"
    LAST_STAGE = "last_stage"
    MEAN = "mean"
    UNKNOWN = "unknown"


class Confidence(StrEnum):
    """How much of the set-up the source states."""

    HIGH = "high"
    MEDIUM = "medium"


class Norm(StrEnum):
    """Normalisation of the blocks."""

    RMS = "rms"
    LAYER = "layer"


class Method(StrEnum):
    """What is trained."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    GPTQ_LORA = "gptq_lora"
    FREEZE = "freeze"


class Quantization(StrEnum):
    """How frozen weights are stored."""

    NF4 = "nf4"
    NF4_DOUBLE = "nf4_double"
    INT8 = "int8"
    GPTQ4 = "gptq4"


class Dtype(StrEnum):
    """Number formats of stored and computed values."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"

    @property
    def size_bytes(self) -> int:
        """Return the bytes of one element of an activation or weight kept in this format.

        fp8 is a format of matrix products only: what is kept beside them stays in 16 bit.
        """
        return 4 if self is Dtype.FP32 else 2


class Optimizer(StrEnum):
    """Update rule."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw_8bit"
    ADAMW_4BIT = "adamw_4bit"
    PAGED_ADAMW = "paged_adamw"
    PAGED_ADAMW_8BIT = "paged_adamw_8bit"
    ADAFACTOR = "adafactor"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd_momentum"
    MUON = "muon"
    LION = "lion"
    OTHER = "other"
    NONE = "none"


class StateDtype(StrEnum):
    """Number format of the optimizer's states."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"
    OTHER = "other"


class OptimizerImplementation(StrEnum):
    """Code that applies the update."""

    FOREACH = "foreach"
    FUSED = "fused"
    APEX = "apex"
    DEEPSPEED = "deepspeed"
    MEGATRON = "megatron"
    UNKNOWN = "unknown"


class Checkpointing(StrEnum):
    """Which activations are recomputed in backward."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class AttentionKernel(StrEnum):
    """How attention is computed."""

    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash"
    UNKNOWN = "unknown"


class LossKernel(StrEnum):
    """How logits become a loss."""

    EAGER = "eager"
    FUSED = "fused"
    CHUNKED = "chunked"
    LINEAR_FUSED = "linear_fused"
    VOCAB_PARALLEL = "vocab_parallel"


class Offload(StrEnum):
    """What lives in host memory."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    PARAMS_AND_OPTIMIZER = "params_and_optimizer"
    ACTIVATIONS = "activations"


class Packing(StrEnum):
    """How sequences fill a batch."""

    PACKED = "packed"
    PADDED = "padded"
    DYNAMIC = "dynamic"
    UNKNOWN = "unknown"


class QuantRecipe(StrEnum):
    """Low-precision recipe of the compute or of the frozen weights."""

    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    FP8_TENSORWISE = "fp8_tensorwise"
    FP8_ROWWISE = "fp8_rowwise"
    FP8_ROWWISE_GW_HP = "fp8_rowwise_gw_hp"
    FP8_DELAYED = "fp8_delayed"
    GPTQ = "gptq"
    NF4 = "nf4"


class Head(StrEnum):
    """What sits on top of the blocks."""

    LM = "lm"
    CLASSIFICATION = "classification"
    NONE = "none"


class Target(StrEnum):
    """A matrix that an adapter is attached to."""

    Q = "q"
    K = "k"
    V = "v"
    O = "o"  # noqa: E741 - the name that every adapter library uses
    GATE = "gate"
    UP = "up"
    DOWN = "down"
    EMBED = "embed"
    HEAD = "head"


class Sharding(StrEnum):
    """How states are divided over data-parallel ranks."""

    NONE = "none"
    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"
    FSDP2 = "fsdp2"
    FSDP_GRAD_OP = "fsdp_grad_op"
    DIST_OPTIMIZER = "dist_optimizer"


class Outcome(StrEnum):
    """Whether a run survived on its card."""

    OOM = "oom"
    FITS = "fits"
