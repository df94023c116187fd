"""Where each architecture's ``config.json`` keeps its dimensions, and how its block is wired.

Defaults are those of transformers' configuration classes. A bias is a constant, or the field
that says whether it is there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from frenzy_shared.catalog.fields import flag, number, problem, size
from frenzy_shared.domain import structure as wiring
from frenzy_shared.domain.model import Family
from frenzy_shared.domain.structure import (
    Experts,
    FusedProjection,
    Norm,
    QueryKeyNorm,
    Residual,
    Softmax,
    Structure,
)

_MAX_EXPERTS: Final = 4096  # DeepSeek-V3 has 256

Config = Mapping[str, Any]
Bias = bool | tuple[str, bool]  # a constant, or a field with its default


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to read one architecture. ``rotary`` is the default share of a head that is rotated.

    ``position_rows`` are rows of a table of learned positions beyond the positions themselves;
    ``None`` where positions are not learned. ``head_dim`` is the default where it is not the
    hidden size over the heads. ``window``: whether a sliding window is used, with its default.
    ``experts`` reads a mixture of experts, ``None`` where the feed-forward part is one.
    """

    structure: Structure
    hidden: tuple[str, ...] = ("hidden_size",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    inner: tuple[str, ...] = ("intermediate_size",)
    inner_per_hidden: int | None = None  # the default of ``inner``
    positions: tuple[str, ...] = ("max_position_embeddings",)
    longest: int = 2048
    position_rows: int | None = None
    head_dim: int | None = None
    rotary: float = 1.0
    attention_bias: Bias = ("attention_bias", False)
    output_bias: Bias = ("attention_bias", False)
    mlp_bias: Bias = False
    head_bias: bool = False
    tied: bool = False
    activation: tuple[str, str] = ("hidden_act", "silu")
    window: Callable[[Config], int | None] = lambda _: None
    adjust: Callable[[Config, Structure], Structure] = lambda _, structure: structure
    experts: Callable[[Config], Experts] | None = None


def rules_of(model_type: str) -> Rules:
    """Return the rules of an architecture; those of Llama, flagged, for one that is not known."""
    return RULES.get(model_type, _ASSUMED)


def _window(default: int | None) -> Callable[[Config], int | None]:
    def read(config: Config) -> int | None:
        found = number(config, "sliding_window", default)
        return None if found is None else int(found)

    return read


def _qwen_window(config: Config) -> int | None:
    return _window(4096)(config) if flag(config, "use_sliding_window", default=False) else None


def _gemma2(config: Config, structure: Structure) -> Structure:
    return replace(
        structure,
        caps_scores=number(config, "attn_logit_softcapping", 50.0) is not None,
        caps_logits=number(config, "final_logit_softcapping", 30.0) is not None,
    )


def _phi(config: Config, structure: Structure) -> Structure:
    normed = flag(config, "qk_layernorm", default=False)
    kind = QueryKeyNorm.LAYER if normed else QueryKeyNorm.NONE
    return replace(structure, query_key_norm=kind)


def _stablelm(config: Config, structure: Structure) -> Structure:
    if flag(config, "qk_layernorm", default=False):
        raise problem("qk_layernorm", "StableLM's norm per head is not supported", "use false")
    parallel = flag(config, "use_parallel_residual", default=False)
    kind = Residual.PARALLEL if parallel else Residual.SEQUENTIAL
    return replace(structure, residual=kind)


def _gpt_neox(config: Config, structure: Structure) -> Structure:
    parallel = flag(config, "use_parallel_residual", default=True)
    kind = Residual.PARALLEL_NORMS if parallel else Residual.SEQUENTIAL
    return replace(structure, residual=kind)


def _opt(config: Config, structure: Structure) -> Structure:
    projected = config.get("word_embed_proj_dim")
    if projected not in (None, config.get("hidden_size")):
        raise problem("word_embed_proj_dim", "differs from hidden_size", "use the same")
    if not flag(config, "do_layer_norm_before", default=True):
        raise problem("do_layer_norm_before", "false is not supported", "use true")
    if not flag(config, "layer_norm_elementwise_affine", default=True):
        raise problem("layer_norm_elementwise_affine", "false is not supported", "use true")
    return structure


def _olmo(config: Config, structure: Structure) -> Structure:
    if config.get("clip_qkv") is not None:
        raise problem("clip_qkv", "is not supported", "remove the field")
    return structure


def _mixtral_experts(config: Config) -> Experts:
    count = ("num_local_experts", "num_experts"), 8
    return _experts(config, *count, chosen=2, normalises=True, full_weights=True)


def _qwen3_experts(config: Config) -> Experts:
    if number(config, "decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        field = "mlp_only_layers" if config.get("mlp_only_layers") else "decoder_sparse_step"
        raise problem(field, "layers without experts are not supported", "remove the field")
    return _normalised_experts(config, count=128)


def _olmoe_experts(config: Config) -> Experts:
    _olmo(config, wiring.LLAMA)
    return _normalised_experts(config, count=64)


def _normalised_experts(config: Config, *, count: int) -> Experts:
    normalises = flag(config, "norm_topk_prob", default=False)
    names = ("num_experts", "num_local_experts")
    return _experts(config, names, count, chosen=8, normalises=normalises)


def _experts(
    config: Config,
    names: tuple[str, ...],
    count: int,
    *,
    chosen: int,
    normalises: bool,
    full_weights: bool = False,
) -> Experts:
    """Read a mixture: fields, with the defaults of the architecture's configuration class."""
    found = size(config, *names, default=count, limit=_MAX_EXPERTS)
    per_token = size(config, "num_experts_per_tok", default=chosen, limit=_MAX_EXPERTS)
    if per_token > found:
        raise problem(
            "num_experts_per_tok", f"{per_token} of {found} experts", f"give 1 to {found}"
        )
    if flag(config, "output_router_logits", default=False):
        raise problem("output_router_logits", "the router's loss is not supported", "use false")
    return Experts(
        count=found, per_token=per_token, normalises=normalises, full_weights=full_weights
    )


_GPT2: Final = Rules(
    structure=wiring.GPT2,
    hidden=("n_embd", "hidden_size"),
    layers=("n_layer", "num_hidden_layers"),
    heads=("n_head", "num_attention_heads"),
    kv_heads=(),
    inner=("n_inner",),
    inner_per_hidden=4,
    positions=("n_positions", "max_position_embeddings"),
    longest=1024,
    position_rows=0,
    rotary=0.0,
    attention_bias=True,
    output_bias=True,
    mlp_bias=True,
    tied=True,
    activation=("activation_function", "gelu_new"),
)
_LLAMA: Final = Rules(structure=wiring.LLAMA, mlp_bias=("mlp_bias", False))
_MISTRAL: Final = Rules(
    structure=wiring.LLAMA,
    longest=131_072,
    attention_bias=False,
    output_bias=False,
    window=_window(4096),
)
_QWEN2: Final = Rules(
    structure=wiring.LLAMA,
    longest=32_768,
    attention_bias=True,
    output_bias=False,
    window=_qwen_window,
)
_GEMMA: Final = Rules(
    structure=replace(wiring.LLAMA, norm=Norm.RMS_SHIFTED, scales_embedding=True),
    longest=8192,
    head_dim=256,
    tied=True,
    activation=("hidden_act", "gelu_pytorch_tanh"),
)
_PHI: Final = Rules(
    structure=Structure(
        norm=Norm.LAYER, gated=False, residual=Residual.PARALLEL, joins_rotary=True
    ),
    rotary=0.5,
    attention_bias=True,
    output_bias=True,
    mlp_bias=True,
    head_bias=True,
    activation=("hidden_act", "gelu_new"),
    adjust=_phi,
)
_OLMO: Final = Rules(
    structure=replace(wiring.LLAMA, norm=Norm.LAYER_FULL), longest=2048, adjust=_olmo
)
_OLMO2: Final = Rules(
    structure=replace(
        wiring.LLAMA,
        norm=Norm.RMS_PRODUCT,
        pre_norms=False,
        post_norms=True,
        query_key_norm=QueryKeyNorm.WHOLE,
    ),
)

RULES: Final[Mapping[str, Rules]] = {
    Family.GPT2: _GPT2,
    Family.LLAMA: _LLAMA,
    Family.MISTRAL: _MISTRAL,
    Family.QWEN2: _QWEN2,
    Family.QWEN3: replace(
        _QWEN2,
        structure=replace(wiring.LLAMA, query_key_norm=QueryKeyNorm.HEADS),
        head_dim=128,
        attention_bias=("attention_bias", False),
        output_bias=("attention_bias", False),
    ),
    Family.MIXTRAL: replace(
        _MISTRAL,
        longest=131_072,
        window=_window(None),
        experts=_mixtral_experts,
    ),
    Family.QWEN3_MOE: replace(
        _QWEN2,
        structure=replace(wiring.LLAMA, query_key_norm=QueryKeyNorm.HEADS),
        inner=("moe_intermediate_size",),
        attention_bias=("attention_bias", False),
        output_bias=("attention_bias", False),
        experts=_qwen3_experts,
    ),
    Family.OLMOE: Rules(
        structure=replace(wiring.LLAMA, query_key_norm=QueryKeyNorm.WHOLE),
        longest=4096,
        experts=_olmoe_experts,
    ),
    Family.GEMMA: _GEMMA,
    Family.GEMMA2: replace(
        _GEMMA,
        structure=replace(
            _GEMMA.structure, post_norms=True, alternates_window=True, eager_only=True
        ),
        activation=("hidden_activation", "gelu_pytorch_tanh"),
        window=_window(4096),
        adjust=_gemma2,
    ),
    Family.PHI: _PHI,
    Family.PHI3: Rules(
        structure=replace(
            wiring.LLAMA, fused=FusedProjection.SLICED, fused_gate=True, joins_rotary=True
        ),
        longest=4096,
        attention_bias=False,
        output_bias=False,
        window=_window(None),
    ),
    Family.STABLELM: Rules(
        structure=Structure(norm=Norm.LAYER, gated=True, joins_rotary=True),
        longest=4096,
        rotary=0.25,
        attention_bias=("use_qkv_bias", False),
        output_bias=False,
        adjust=_stablelm,
    ),
    Family.STARCODER2: Rules(
        structure=Structure(norm=Norm.LAYER, gated=False),
        longest=4096,
        attention_bias=("use_bias", True),
        output_bias=("use_bias", True),
        mlp_bias=("use_bias", True),
        tied=True,
        activation=("hidden_act", "gelu_pytorch_tanh"),
        window=_window(None),
    ),
    Family.GRANITE: replace(
        _LLAMA,
        structure=replace(
            wiring.LLAMA, scales_embedding=True, scales_residual=True, scales_logits=True
        ),
    ),
    Family.OLMO: _OLMO,
    Family.OLMO2: _OLMO2,
    Family.OLMO3: replace(
        _OLMO2,
        structure=replace(_OLMO2.structure, alternates_window=True),
        window=_window(4096),
    ),
    Family.GPT_NEOX: Rules(
        structure=Structure(
            norm=Norm.LAYER, gated=False, fused=FusedProjection.HEADS, joins_rotary=True
        ),
        kv_heads=(),
        rotary=0.25,
        attention_bias=("attention_bias", True),
        output_bias=("attention_bias", True),
        mlp_bias=True,
        activation=("hidden_act", "gelu"),
        adjust=_gpt_neox,
    ),
    Family.GPTJ: replace(
        _GPT2,
        structure=Structure(
            norm=Norm.LAYER,
            gated=False,
            residual=Residual.PARALLEL,
            softmax=Softmax.SCORES,
            joins_rotary=True,
            rotates_first=True,
            repeats_tables=True,
        ),
        longest=2048,
        position_rows=None,
        attention_bias=False,
        output_bias=False,
        head_bias=True,
        tied=False,
    ),
    Family.OPT: Rules(
        structure=Structure(norm=Norm.LAYER, gated=False, scales_query=True),
        kv_heads=(),
        inner=("ffn_dim",),
        position_rows=2,
        rotary=0.0,
        attention_bias=("enable_bias", True),
        output_bias=("enable_bias", True),
        mlp_bias=("enable_bias", True),
        tied=True,
        activation=("activation_function", "relu"),
        adjust=_opt,
    ),
}
_ASSUMED: Final = replace(
    _LLAMA,
    structure=replace(wiring.LLAMA, assumed=True),
    hidden=("hidden_size", "n_embd", "d_model"),
    layers=("num_hidden_layers", "n_layer", "num_layers"),
    heads=("num_attention_heads", "n_head", "num_heads"),
    inner=("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    inner_per_hidden=4,
    window=_window(None),
)
