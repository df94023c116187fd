"""Build the model that a job names, with random weights, as transformers implements it.

What MARP's memory model relies on is listed in docs/explanation/trainer.md.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
import transformers
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from frenzy_shared.catalog.models import architecture_from_config, attention_of
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_trainer.errors import RankFailure

DTYPES: Final[Mapping[Precision, torch.dtype]] = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
_RANDOM: Final = ("pdrop", "dropout", "dropout_rate", "layerdrop")  # ends of the fields' names


def build_model(
    config: Mapping[str, Any],
    *,
    precision: Precision,
    attention: Attention,
    checkpointing: ActivationCheckpointing,
    seed: int,
) -> PreTrainedModel:
    """Return a causal LM in training mode whose weights depend on ``config`` and ``seed`` only.

    The weights are made in the compute precision, so that the engine has nothing to convert.
    """
    model_class = causal_class(str(config["model_type"]))
    settings = model_class.config_class.from_dict(without_randomness(config))
    torch.manual_seed(seed)
    model: PreTrainedModel = model_class._from_config(  # noqa: SLF001 - the public way imports every model
        settings,
        dtype=DTYPES[precision],
        attn_implementation=str(_attention(model_class, config, attention)),
    )
    model.loss_type = "ForCausalLM"  # GPT-2's class name does not tell transformers
    enable_checkpointing(model, checkpointing)
    model.train()
    return model


def enable_checkpointing(model: Any, checkpointing: ActivationCheckpointing) -> None:  # noqa: ANN401 - by its method
    """Let every block of a transformers model recompute its activations, if asked to."""
    if checkpointing is ActivationCheckpointing.FULL:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _attention(model_class: Any, config: Mapping[str, Any], asked: Attention) -> Attention:  # noqa: ANN401 - one of transformers' classes
    """Return the attention that an architecture has: of one that nobody checked, ask its class."""
    known = attention_of(architecture_from_config(config), asked)
    return known if model_class._supports_sdpa else Attention.EAGER  # noqa: SLF001 - nothing public tells


def causal_class(model_type: str) -> Any:  # noqa: ANN401 - one of transformers' classes
    """Return the class of a causal LM, importing no other architecture.

    Raises:
        RankFailure: the installed transformers has none for this type.
    """
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)
    if name is None:
        raise RankFailure(
            f"transformers {transformers.__version__} has no causal LM of type {model_type!r}",
            suggestions=["install the transformers version that this release was made with"],
        )
    return getattr(transformers, name)


def without_randomness(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``config`` for training without a cache and without dropout.

    What a plan changes must not change the mathematics, and no plan knows how dropout is seeded.
    Special tokens that only the class sets are left out where the vocabulary lacks them.
    """
    settings = {**config, "use_cache": False}
    for name, value in causal_class(str(config["model_type"])).config_class().to_dict().items():
        if not isinstance(value, float | int):
            continue
        if name.endswith(_RANDOM):
            settings[name] = 0.0
        elif name.endswith("_token_id") and value >= config["vocab_size"]:
            settings.setdefault(name, None)
    return settings
