"""Low-rank adapters on a model: put them there (peft), and take them off again for export."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from frenzy_shared.domain.adapters import Adapters

_NAME = "default"  # peft's, for a model with one set of adapters


@dataclass(frozen=True, slots=True)
class Adapter:
    """The matrices beside one weight. ``transposed``: the weight is stored the other way round."""

    a: torch.nn.Parameter
    b: torch.nn.Parameter
    scale: float
    transposed: bool

    def merged_into(self, weight: torch.Tensor) -> torch.Tensor:
        """Return W + scale B A in the precision of ``weight``; the sum is made in fp32."""
        change = self.scale * (self.b.detach().float().cpu() @ self.a.detach().float().cpu())
        whole = weight.detach().float().cpu()
        return (whole + (change.T if self.transposed else change)).to(weight.dtype)


def add_adapters(model: PreTrainedModel, adapters: Adapters) -> None:
    """Freeze ``model`` and give it adapters, in the precision of its weights.

    A is random, B zero: the first step starts from the model as it is.
    """
    from peft import LoraConfig, inject_adapter_in_model  # noqa: PLC0415 - only jobs with adapters

    inject_adapter_in_model(LoraConfig(**_settings(model, adapters)), model)


def description(model: PreTrainedModel, adapters: Adapters) -> dict[str, Any]:
    """Return the adapter_config.json with which peft loads exported adapters."""
    return {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none"} | _settings(
        model, adapters
    )


def adapters_of(model: torch.nn.Module) -> Mapping[str, Adapter]:
    """Return the adapters of ``model`` by the names of the weights that they are beside."""
    found: dict[str, Adapter] = {}
    for name, module in model.named_modules():
        if hasattr(module, "lora_A"):
            layer: Any = module
            found[f"{name}.base_layer.weight"] = Adapter(
                a=layer.lora_A[_NAME].weight,
                b=layer.lora_B[_NAME].weight,
                scale=layer.scaling[_NAME],
                transposed=layer.fan_in_fan_out,
            )
    return found


def is_adapter(name: str) -> bool:
    """Tell whether a parameter's name is that of an adapter."""
    return f".{_NAME}.weight" in name and ".lora_" in name


def name_on_its_own(name: str) -> str:
    """Return what peft calls an adapter's parameter in its files."""
    return f"base_model.model.{name.replace(f'.{_NAME}.', '.')}"


def name_without_adapters(name: str) -> str:
    """Return what a weight is called in the model without adapters."""
    return name.replace(".base_layer.", ".")


def _settings(model: PreTrainedModel, adapters: Adapters) -> dict[str, Any]:
    return {
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": adapters.dropout,
        "target_modules": list(adapters.modules),
        "fan_in_fan_out": model.config.model_type == "gpt2",
    }
