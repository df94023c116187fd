"""From a preset's name or a Hugging Face ``config.json`` to an architecture, without its code.

Nothing of a configuration is ever executed: fields that point at code are refused.
"""

import copy
import difflib
from collections.abc import Mapping
from typing import Any, Final

from frenzy_shared.catalog.presets import PRESETS
from frenzy_shared.domain.model import Family, ModelArchitecture
from frenzy_shared.errors import FieldProblem, InvalidModelConfig

MAX_DIMENSION: Final = 2**24  # widest field of any published model is below 2**18
MAX_LAYERS: Final = 4096
_ACTIVATIONS: Final = ("gelu_new", "gelu", "gelu_pytorch_tanh", "relu", "silu")
_REFUSED_WHEN_SET: Final = {
    "auto_map": ("runs code that comes with the model", "use the library's own architecture"),
    "quantization_config": ("quantised training is not supported", "remove the field"),
    "add_cross_attention": ("only plain decoders are supported", "remove the field"),
    "reorder_and_upcast_attn": ("is not supported", "remove the field"),
}


def resolve_model(model: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's configuration: a copy of a preset's, or the given one.

    Raises:
        InvalidModelConfig: no preset has that name.
    """
    if not isinstance(model, str):
        return copy.deepcopy(dict(model))
    preset = PRESETS.get(model.lower())
    if preset is None:
        close = difflib.get_close_matches(model.lower(), PRESETS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(PRESETS)}"
        raise InvalidModelConfig(
            f"model: no preset is called {model[:80]!r}; {hint}",
            problems=[FieldProblem(pointer="/model", detail=f"unknown preset; {hint}")],
            suggestions=["name a preset, or give the contents of the model's config.json"],
        )
    return copy.deepcopy(dict(preset))


def architecture_from_config(config: Mapping[str, Any]) -> ModelArchitecture:
    """Read the dimensions of a GPT-2 or Llama decoder from its configuration.

    Absent fields take the value that transformers gives them, except for the sizes, which must
    be there.

    Raises:
        InvalidModelConfig: naming the field that is wrong and what to do about it.
    """
    for field, (detail, remedy) in _REFUSED_WHEN_SET.items():
        if config.get(field):
            raise _problem(field, detail, remedy)
    family = config.get("model_type")
    if family == Family.GPT2:
        return _gpt2(config)
    if family == Family.LLAMA:
        return _llama(config)
    raise _problem(
        "model_type",
        f"{str(family)[:80]!r} is not supported" if family else "is required",
        f"use one of: {', '.join(Family)}",
    )


def max_positions(config: Mapping[str, Any]) -> int:
    """Return the longest sequence that a supported model was made for, in tokens."""
    if config.get("model_type") == Family.GPT2:
        return _size(config, "n_positions", "max_position_embeddings", default=1024)
    return _size(config, "max_position_embeddings", default=2048)


def _gpt2(config: Mapping[str, Any]) -> ModelArchitecture:
    hidden = _size(config, "n_embd", "hidden_size")
    heads = _size(config, "n_head", "num_attention_heads")
    _divides(heads, hidden, "n_head", "n_embd")
    return ModelArchitecture(
        family=Family.GPT2,
        hidden_size=hidden,
        num_layers=_size(config, "n_layer", "num_hidden_layers", limit=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=_size(config, "n_inner", default=4 * hidden),
        vocab_size=_size(config, "vocab_size"),
        max_positions=max_positions(config),
        tied_embeddings=_flag(config, "tie_word_embeddings", default=True),
        attention_bias=True,
        mlp_bias=True,
        activation=_activation(config, "activation_function", "gelu_new"),
    )


def _llama(config: Mapping[str, Any]) -> ModelArchitecture:
    hidden = _size(config, "hidden_size")
    heads = _size(config, "num_attention_heads")
    kv_heads = _size(config, "num_key_value_heads", default=heads)
    _divides(heads, hidden, "num_attention_heads", "hidden_size")
    _divides(kv_heads, heads, "num_key_value_heads", "num_attention_heads")
    head_dim = _size(config, "head_dim", default=hidden // heads)
    if head_dim % 2:
        raise _problem("head_dim", f"is {head_dim}", "rotary embeddings need an even number")
    return ModelArchitecture(
        family=Family.LLAMA,
        hidden_size=hidden,
        num_layers=_size(config, "num_hidden_layers", limit=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=_size(config, "intermediate_size"),
        vocab_size=_size(config, "vocab_size"),
        max_positions=None,
        tied_embeddings=_flag(config, "tie_word_embeddings", default=False),
        attention_bias=_flag(config, "attention_bias", default=False),
        mlp_bias=_flag(config, "mlp_bias", default=False),
        activation=_activation(config, "hidden_act", "silu"),
    )


def _size(
    config: Mapping[str, Any], *names: str, default: int | None = None, limit: int = MAX_DIMENSION
) -> int:
    """Read the first of ``names`` that is set; later names are transformers' aliases."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise _problem(name, f"is {str(value)[:40]!r}", "give a whole number")
        if not 1 <= value <= limit:
            raise _problem(name, f"is {str(value)[:24]}", f"give a number from 1 to {limit}")
        return value
    if default is None:
        raise _problem(names[0], "is required", "give the model's whole config.json")
    return default


def _flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise _problem(name, f"is {str(value)[:40]!r}", "give true or false")
    return value


def _activation(config: Mapping[str, Any], name: str, default: str) -> str:
    value = config.get(name, default)
    if value not in _ACTIVATIONS:
        raise _problem(
            name, f"{str(value)[:40]!r} is not supported", f"use one of: {', '.join(_ACTIVATIONS)}"
        )
    return str(value)


def _divides(part: int, whole: int, part_name: str, whole_name: str) -> None:
    if whole % part:
        raise _problem(
            whole_name if whole_name.endswith(("size", "embd")) else part_name,
            f"{whole_name} ({whole}) is not divisible by {part_name} ({part})",
            f"choose {part_name} so that it divides {whole_name}",
        )


def _problem(field: str, detail: str, remedy: str = "") -> InvalidModelConfig:
    text = f"{detail}; {remedy}" if remedy else detail
    return InvalidModelConfig(
        f"model.{field}: {text}",
        problems=[FieldProblem(pointer=f"/model/{field}", detail=text)],
        suggestions=[remedy] if remedy else (),
    )
