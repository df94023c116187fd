"""The module to trace: an installed transformers architecture, or what a user's factory returns."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from frenzy_shared.catalog.models import architecture_from_config
from frenzy_shared.errors import InvalidModelConfig
from frenzy_shared.messages.trace import DEPTH_FIELDS, Factory, TraceRequest
from frenzy_trainer.adapters import add_adapters
from frenzy_trainer.chunked import chunk_loss
from frenzy_trainer.errors import RankFailure
from frenzy_trainer.model import (
    DTYPES,
    build_model,
    causal_class,
    enable_checkpointing,
    without_randomness,
)

_BY_LAYER: Final = ("layer_types",)  # lists with an entry a layer: the library's default instead


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Builds the module of a request in training mode, and its micro-batches."""

    request: TraceRequest

    def build(self) -> torch.nn.Module:
        """Return the module, its weights in the precision asked for, without dropout.

        Raises:
            InvalidModelConfig: the configuration is impossible.
            RankFailure: the user's factory failed.
        """
        request = self.request
        if request.factory is not None:
            return _made(request.factory, request)
        config = request.model or {}
        if not _is_known(config):
            return _installed(config, request)
        return _trained(config, request)

    def with_depth(self, layers: int) -> "ModelSource":
        """Return the source of the same model with another number of layers.

        Raises:
            InvalidModelConfig: its layers are not a number of its configuration.
        """
        config = self.request.model or {}
        names = [name for name in DEPTH_FIELDS if name in config]
        if not names:
            raise InvalidModelConfig(
                f"model: none of {', '.join(DEPTH_FIELDS)} says how many layers it has",
                suggestions=["trace the engine instead: it takes the module as it is"],
            )
        changed = {name: value for name, value in config.items() if name not in _BY_LAYER}
        changed |= dict.fromkeys(names, layers)
        return ModelSource(self.request.model_copy(update={"model": changed}))

    def tokens(self) -> torch.Tensor:
        """Return one micro-batch, as ``input_ids`` and ``labels``."""
        shape = (self.request.micro_batch_size, self.request.sequence_length)
        return torch.zeros(shape, dtype=torch.int64)


def loss_of(output: Any) -> torch.Tensor:  # noqa: ANN401 - a model may return anything
    """Return the loss that a module answered with: itself, ``.loss``, or the first of a tuple.

    Raises:
        RankFailure: there is none.
    """
    found = getattr(output, "loss", output)
    if isinstance(found, tuple) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor) or found.dim() > 1:
        raise RankFailure(
            f"the model returned {type(output).__name__} without a loss",
            suggestions=["forward(input_ids, labels) returns the loss, or something with .loss"],
        )
    return found


def largest_layer(model: torch.nn.Module) -> int:
    """Return the parameters of the largest layer: an entry of the longest list of modules."""
    lists = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList)]
    layers = max(lists, key=len, default=[model])
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    return max(sizes, default=0)


def _is_known(config: Mapping[str, Any]) -> bool:
    """Tell whether the trainer trains this model, so that its own code builds it."""
    try:
        architecture_from_config(config)
    except InvalidModelConfig:
        return False
    return True


def _trained(config: Mapping[str, Any], request: TraceRequest) -> torch.nn.Module:
    """Build what the trainer trains, in the trainer's order (session.py)."""
    model = build_model(
        config,
        precision=request.precision,
        attention=request.attention,
        checkpointing=request.checkpointing,
        seed=0,
    )
    if request.adapters is not None:
        add_adapters(model, request.adapters)
    if request.loss_chunk is not None:
        chunk_loss(model, request.loss_chunk)
    return _training(model)


def _installed(config: Mapping[str, Any], request: TraceRequest) -> torch.nn.Module:
    """Build an architecture that transformers has and Frenzy has no formulas for."""
    kind = causal_class(str(config.get("model_type")))
    try:
        model = kind._from_config(  # noqa: SLF001 - as build_model does
            kind.config_class.from_dict(without_randomness(config)),
            dtype=DTYPES[request.precision],
            attn_implementation=str(request.attention),
        )
    except MemoryError:
        raise
    except Exception as error:  # whatever an architecture says to dimensions that cannot be
        raise InvalidModelConfig(
            f"transformers cannot build this model: {type(error).__name__}: {str(error)[:300]}"
        ) from error
    enable_checkpointing(model, request.checkpointing)
    return _training(model)


def _training(model: Any) -> torch.nn.Module:  # noqa: ANN401 - untyped library
    module: torch.nn.Module = model.train()
    return module


def _made(factory: Factory, request: TraceRequest) -> torch.nn.Module:
    """Call the user's factory with the precision as torch's default."""
    module, _, function = factory.target.partition(":")
    sys.path.insert(0, factory.folder)
    default = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[request.precision])
    try:
        made = getattr(importlib.import_module(module), function)()
    except MemoryError:
        raise
    except Exception as error:
        raise RankFailure(f"{factory.target} failed: {type(error).__name__}: {error}") from error
    finally:
        torch.set_default_dtype(default)
    if not isinstance(made, torch.nn.Module):
        raise RankFailure(f"{factory.target} returned {type(made).__name__}, not a torch.nn.Module")
    enable_checkpointing(made, request.checkpointing)
    return made.train()
