"""Write the trained model as config.json + model.safetensors, which transformers reloads."""

import json
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from frenzy_trainer.errors import CheckpointError
from frenzy_trainer.failures import is_communication_error
from frenzy_trainer.folders import publish
from frenzy_trainer.memory import host_memory
from frenzy_trainer.run import Run
from frenzy_trainer.safetensors import SafetensorsWriter, TensorEntry


def export_model(run: Run, engine: Any) -> Path:  # noqa: ANN401 - DeepSpeed's engine is untyped
    """Write ``<FRENZY_CHECKPOINT_DIR>/model`` and return it. Collective: every rank calls it.

    Weights keep the precision they were trained in; tied weights are written once. Under
    ZeRO-3 one parameter at a time is gathered, and written before the next.

    Raises:
        CheckpointError: the folder cannot be written; an earlier export is untouched.
    """
    environment = run.environment
    final = environment.checkpoint_dir / "model"
    temporary = environment.checkpoint_dir / f".tmp-{environment.attempt}-model"
    try:
        if environment.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _write_description(run, engine.module, temporary)
        _write_weights(engine.module, temporary if environment.rank == 0 else None)
        if environment.rank == 0:
            publish(temporary, final)
        dist.barrier()
    except (OSError, RuntimeError) as error:
        if is_communication_error(error):
            raise
        if environment.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"cannot write the model to {final}: {error}",
            suggestions=["free space on the checkpoint folder's disk"],
        ) from error
    return final


def _write_description(run: Run, module: torch.nn.Module, folder: Path) -> None:
    dtype = str(next(module.parameters()).dtype).removeprefix("torch.")
    config = {**run.model_config, "architectures": [type(module).__name__], "dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer = run.environment.tokenizer
    if tokenizer is not None:
        source = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        shutil.copyfile(source, folder / "tokenizer.json")


def _write_weights(module: torch.nn.Module, folder: Path | None) -> None:
    # named_parameters yields a tied parameter once, under the name that transformers loads.
    parameters = list(module.named_parameters())
    entries = [TensorEntry(name, value.dtype, _shape(value)) for name, value in parameters]
    writer = SafetensorsWriter(folder / "model.safetensors", entries) if folder else None
    with writer or nullcontext():
        for _, parameter in parameters:
            with _whole(parameter):
                if writer is not None:
                    with host_memory():
                        writer.write(parameter)


def _shape(parameter: torch.nn.Parameter) -> tuple[int, ...]:
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def _whole(parameter: torch.nn.Parameter) -> AbstractContextManager[None]:
    """Gather a parameter that ZeRO-3 keeps in shards."""
    if not hasattr(parameter, "ds_id"):
        return nullcontext()
    import deepspeed  # noqa: PLC0415 - only this stage needs it here

    gathered: AbstractContextManager[None] = deepspeed.zero.GatheredParameters([parameter])
    return gathered
