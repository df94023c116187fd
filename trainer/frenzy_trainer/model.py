"""Build the model that a job names, with random weights, as transformers implements it.

What MARP's memory model relies on is listed in docs/explanation/trainer.md.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from frenzy_shared.domain.model import Attention, Family
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision

DTYPES: Final[Mapping[Precision, torch.dtype]] = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
_NO_DROPOUT: Final[Mapping[Family, Mapping[str, float]]] = {
    Family.GPT2: {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    Family.LLAMA: {"attention_dropout": 0.0},
}


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
    family = Family(config["model_type"])
    overrides = {"use_cache": False, **_NO_DROPOUT[family]}
    config_class, model_class = _classes(family)
    torch.manual_seed(seed)
    model: PreTrainedModel = model_class._from_config(  # noqa: SLF001 - the public way imports every model
        config_class(**{**config, **overrides}),
        dtype=DTYPES[precision],
        attn_implementation=str(attention),
    )
    model.loss_type = "ForCausalLM"  # GPT-2's class name does not tell transformers
    if checkpointing is ActivationCheckpointing.FULL:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    return model


def _classes(family: Family) -> tuple[Any, Any]:
    match family:
        case Family.GPT2:
            from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 - one family's code

            return GPT2Config, GPT2LMHeadModel
        case Family.LLAMA:
            from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - same

            return LlamaConfig, LlamaForCausalLM
