"""From a preset's name or a Hugging Face ``config.json`` to an architecture, without its code.

Nothing of a configuration is ever executed: fields that point at code are refused.
"""

import copy
import difflib
from collections.abc import Mapping
from typing import Any, Final, cast

from frenzy_shared.catalog.causal import CAUSAL_MODEL_TYPES
from frenzy_shared.catalog.estimated import ESTIMATED, ESTIMATED_TYPES
from frenzy_shared.catalog.families import RULES, Bias, Rules, rules_of
from frenzy_shared.catalog.fields import (
    MAX_LAYERS,
    activation,
    divides,
    flag,
    number,
    problem,
    size,
)
from frenzy_shared.catalog.presets import PRESETS
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture
from frenzy_shared.errors import FieldProblem, InvalidModelConfig

_NAMED: Final = {**PRESETS, **ESTIMATED}
_REFUSED_WHEN_SET: Final = {
    "auto_map": ("runs code that comes with the model", "use the library's own architecture"),
    "quantization_config": ("quantised training is not supported", "remove the field"),
    "add_cross_attention": ("only plain decoders are supported", "remove the field"),
    "reorder_and_upcast_attn": ("is not supported", "remove the field"),
    "is_encoder_decoder": ("only plain decoders are supported", "use a decoder"),
}
_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def resolve_model(model: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's configuration: a copy of a preset's, or the given one.

    Raises:
        InvalidModelConfig: no preset has that name.
    """
    if not isinstance(model, str):
        return copy.deepcopy(dict(model))
    preset = _NAMED.get(model.lower())
    if preset is None:
        close = difflib.get_close_matches(model.lower(), _NAMED, n=1, cutoff=0.5)
        known = f"{', '.join(list(_NAMED)[:8])} and {len(_NAMED) - 8} more"
        hint = f"did you mean {close[0]!r}?" if close else f"known: {known}"
        raise InvalidModelConfig(
            f"model: no preset is called {model[:80]!r}; {hint}",
            problems=[FieldProblem(pointer="/model", detail=f"unknown preset; {hint}")],
            suggestions=["name a preset, or give the contents of the model's config.json"],
        )
    return copy.deepcopy(dict(preset))


def architecture_from_config(config: Mapping[str, Any]) -> ModelArchitecture:
    """Read the dimensions of a decoder from its configuration.

    Absent fields take the value that transformers gives them, except for the sizes, which must
    be there. An architecture that transformers has and nobody checked here is read as if it were
    like Llama, and flagged (``structure.assumed``).

    Raises:
        InvalidModelConfig: naming the field that is wrong and what to do about it.
    """
    for field, (detail, remedy) in _REFUSED_WHEN_SET.items():
        if config.get(field):
            raise problem(field, detail, remedy)
    kind = _model_type(config)
    rules = rules_of(kind)
    if rules.experts is None:
        _refuse_experts(config)
    hidden, heads = size(config, *rules.hidden), size(config, *rules.heads)
    if rules.head_dim is None:
        divides(heads, hidden, rules.heads[0], rules.hidden[0])
    head_dim = size(config, "head_dim", default=rules.head_dim or max(1, hidden // heads))
    kv_heads = size(config, *rules.kv_heads, default=heads)
    divides(kv_heads, heads, "num_key_value_heads", "num_attention_heads")
    inner = None if rules.inner_per_hidden is None else rules.inner_per_hidden * hidden
    positions = max_positions(config)
    return ModelArchitecture(
        family=Family(kind) if kind in tuple(Family) else Family.OTHER,
        structure=rules.adjust(config, rules.structure),
        hidden_size=hidden,
        num_layers=size(config, *rules.layers, limit=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=size(config, *rules.inner, default=inner),
        vocab_size=size(config, "vocab_size"),
        max_positions=None if rules.position_rows is None else positions + rules.position_rows,
        rotary_dim=_rotary_dim(config, rules, head_dim),
        tied_embeddings=flag(config, "tie_word_embeddings", default=rules.tied),
        attention_bias=_bias(config, rules.attention_bias),
        output_bias=_bias(config, rules.output_bias),
        mlp_bias=_bias(config, rules.mlp_bias),
        activation=activation(config, *rules.activation),
        head_bias=rules.head_bias,
        sliding_window=rules.window(config),
        experts=None if rules.experts is None else rules.experts(config),
    )


def attention_of(model: ModelArchitecture, asked: Attention) -> Attention:
    """Return how attention is really computed: some architectures have no fused kernel."""
    return Attention.EAGER if model.structure.eager_only else asked


def max_positions(config: Mapping[str, Any]) -> int:
    """Return the longest sequence that a model was made for, in tokens."""
    rules = rules_of(str(config.get("model_type")))
    return size(config, *rules.positions, default=rules.longest)


def _model_type(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    if not kind:
        raise problem("model_type", "is required", f"use one of: {', '.join(RULES)}")
    if isinstance(kind, str) and kind in ESTIMATED_TYPES:
        raise problem(
            "model_type",
            f"{kind!r} models cannot be planned or trained yet",
            "ask `frenzy estimate` what they take, or train another model",
        )
    if not isinstance(kind, str) or kind not in CAUSAL_MODEL_TYPES:
        close = difflib.get_close_matches(str(kind)[:80], CAUSAL_MODEL_TYPES, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(RULES)}"
        raise problem("model_type", f"{str(kind)[:80]!r} is not supported", hint)
    return kind


def _refuse_experts(config: Mapping[str, Any]) -> None:
    for name in _EXPERTS:
        if config.get(name) is not None and size(config, name) > 1:
            mixtures = [kind for kind, rules in RULES.items() if rules.experts is not None]
            raise problem(
                name,
                "this architecture's mixture of experts is not supported",
                f"use a dense model, or one of: {', '.join(mixtures)}",
            )


def _rotary_dim(config: Mapping[str, Any], rules: Rules, head_dim: int) -> int:
    """Read how many channels of a head are rotated: transformers' fields, old and new."""
    if config.get("rotary_dim") is not None:  # GPT-J counts channels
        found = size(config, "rotary_dim", limit=head_dim)
    else:
        nested = config.get("rope_parameters")
        named = {"partial_rotary_factor", "rotary_pct"} & config.keys()
        source = cast("Mapping[str, Any]", nested) if isinstance(nested, Mapping) else config
        name = "rotary_pct" if named == {"rotary_pct"} else "partial_rotary_factor"
        share = rules.rotary if source.get(name) is None else number(source, name, None)
        found = int(head_dim * min(1.0, share or 0.0)) if rules.rotary else 0
    if found % 2:
        raise problem("head_dim", f"is {head_dim}", "rotary embeddings need an even number")
    return found


def _bias(config: Mapping[str, Any], rule: Bias) -> bool:
    return rule if isinstance(rule, bool) else flag(config, rule[0], default=rule[1])
