"""Write the trained model as config.json + model.safetensors, which transformers reloads.

Adapters are written twice: merged into the weights, and on their own, as peft reloads them.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from frenzy_shared.domain.adapters import Adapters
from frenzy_trainer.adapters import (
    Adapter,
    adapters_of,
    description,
    is_adapter,
    name_on_its_own,
    name_without_adapters,
)
from frenzy_trainer.errors import CheckpointError
from frenzy_trainer.failures import is_communication_error
from frenzy_trainer.folders import publish
from frenzy_trainer.memory import host_memory
from frenzy_trainer.run import Run
from frenzy_trainer.safetensors import SafetensorsWriter, TensorEntry


def export_model(run: Run, engine: Any) -> Path:  # noqa: ANN401 - DeepSpeed's engine is untyped
    """Write ``<FRENZY_CHECKPOINT_DIR>/model`` and return it. Collective: every rank calls it.

    Weights keep the precision they were trained in; tied weights are written once. Under
    ZeRO-3 one parameter at a time is gathered, and written before the next. Adapters also go to
    ``<FRENZY_CHECKPOINT_DIR>/adapter``.

    Raises:
        CheckpointError: a folder cannot be written; an earlier export is untouched.
    """
    module = engine.module
    adapters = run.architecture.adapters
    if adapters is not None:
        _export(run, "adapter", _adapter_files(module, adapters))
    return _export(run, "model", _model_files(run, module))


@dataclass(frozen=True)
class _Files:
    """What goes into a folder: a JSON description, and weights with their parts (W, A, B)."""

    description: tuple[str, Mapping[str, Any]]
    weights: str
    tensors: tuple["_Tensor", ...]


@dataclass(frozen=True)
class _Tensor:
    """One tensor of a file: a parameter, with the adapter that is merged into it."""

    name: str
    parameter: torch.nn.Parameter
    adapter: Adapter | None = None

    @property
    def entry(self) -> TensorEntry:
        shape = tuple(getattr(self.parameter, "ds_shape", self.parameter.shape))
        return TensorEntry(self.name, self.parameter.dtype, shape)

    def value(self) -> torch.Tensor:
        """Return the tensor itself; its parts must be whole."""
        weight = self.parameter
        return weight if self.adapter is None else self.adapter.merged_into(weight)

    def whole(self) -> AbstractContextManager[None]:
        """Gather the parts that ZeRO-3 keeps in shards."""
        parts = [self.parameter, *((self.adapter.a, self.adapter.b) if self.adapter else ())]
        if not hasattr(self.parameter, "ds_id"):
            return nullcontext()
        import deepspeed  # noqa: PLC0415 - only this stage needs it here

        gathered: AbstractContextManager[None] = deepspeed.zero.GatheredParameters(parts)
        return gathered


def _model_files(run: Run, module: Any) -> _Files:  # noqa: ANN401 - a model, or peft's layers in it
    adapters = adapters_of(module)
    # named_parameters yields a tied parameter once, under the name that transformers loads.
    tensors = tuple(
        _Tensor(name_without_adapters(name), parameter, adapters.get(name))
        for name, parameter in module.named_parameters()
        if not is_adapter(name)
    )
    dtype = str(tensors[0].parameter.dtype).removeprefix("torch.")
    config = {**run.model_config, "architectures": [type(module).__name__], "dtype": dtype}
    return _Files(("config.json", config), "model.safetensors", tensors)


def _adapter_files(module: Any, adapters: Adapters) -> _Files:  # noqa: ANN401 - as above
    tensors = tuple(
        _Tensor(name_on_its_own(name), parameter)
        for name, parameter in module.named_parameters()
        if is_adapter(name)
    )
    config = description(module, adapters)
    return _Files(("adapter_config.json", config), "adapter_model.safetensors", tensors)


def _export(run: Run, name: str, files: _Files) -> Path:
    environment = run.environment
    leads = environment.rank == 0
    final = environment.checkpoint_dir / name
    temporary = environment.checkpoint_dir / f".tmp-{environment.attempt}-{name}"
    try:
        if leads:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _write_description(run, files, temporary)
        _write_weights(files, temporary if leads else None)
        if leads:
            publish(temporary, final)
        dist.barrier()
    except (OSError, RuntimeError) as error:
        if is_communication_error(error):
            raise
        if leads:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"cannot write the {name} to {final}: {error}",
            suggestions=["free space on the checkpoint folder's disk"],
        ) from error
    return final


def _write_description(run: Run, files: _Files, folder: Path) -> None:
    name, content = files.description
    (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    tokenizer = run.environment.tokenizer
    if tokenizer is not None:
        source = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        shutil.copyfile(source, folder / "tokenizer.json")


def _write_weights(files: _Files, folder: Path | None) -> None:
    entries = [tensor.entry for tensor in files.tensors]
    writer = SafetensorsWriter(folder / files.weights, entries) if folder else None
    with writer or nullcontext():
        for tensor in files.tensors:
            with tensor.whole():
                if writer is not None:
                    with host_memory():
                        writer.write(tensor.value())
