"""Carry a checkpoint from one plan to another through DeepSpeed's universal format.

Plain checkpoints are sharded for one world size. The universal format has one file per
parameter and moment, which any world size loads. DeepSpeed 0.19 writes and reads it in two
dialects: that of ZeRO-1 and 2, and that of ZeRO-3. ``convert`` translates, bit for bit. Between
which plans that works is the rule of ``frenzy_shared.domain.continuation``, which the scheduler
obeys as well.
"""

import contextlib
import io
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import torch

# DeepSpeed refuses to convert a ZeRO-1/2 checkpoint whose saver did not declare this.
CLIENT_STATE: Final[dict[str, Any]] = {
    "universal_checkpoint_info": {"universal_checkpoint_version": 0.2}
}
CONFIG: Final[dict[str, Any]] = {"checkpoint": {"load_universal": True}}

_TENSORS: Final = ("fp32.pt", "exp_avg.pt", "exp_avg_sq.pt")
_STATE: Final = "optimizer_state.pt"
_MODEL_1_2: Final = "mp_rank_00_model_states.pt"
_MODEL_3: Final = "zero_pp_rank_0_mp_rank_00_model_states.pt"


def convert(source: Path, target: Path, *, from_stage: int, to_stage: int) -> None:
    """Write the universal form of the sharded checkpoint ``source`` to ``target``.

    Needs three times the checkpoint's size in free space for a moment, and runs in this process.
    """
    from deepspeed.checkpoint.ds_to_universal import (  # noqa: PLC0415 - only when a plan changed
        main,
    )

    target.mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(
            Namespace(
                input_folder=str(source),
                output_folder=str(target),
                num_extract_workers=1,
                num_merge_workers=1,
                keep_temp_folder=False,
                strict=True,
                inject_missing_state=False,
            )
        )
    if from_stage < 3 <= to_stage:
        _as_stage_3_reads(target)
    elif to_stage < 3 <= from_stage:
        _as_stages_1_and_2_read(target)


def _as_stage_3_reads(folder: Path) -> None:
    """Say the number of steps once for all, and name the model's file as ZeRO-3 does."""
    state_path = folder / "zero" / _STATE
    state = _load(state_path)
    step = _load(next((folder / "zero").rglob("step.pt")))
    state["optimizer_state_dict"] = {
        "state": {0: {"step": step}},
        "param_groups": state["param_groups"],
    }
    torch.save(state, state_path)
    shutil.copyfile(folder / _MODEL_1_2, folder / _MODEL_3)


def _as_stages_1_and_2_read(folder: Path) -> None:
    """Say version and steps where they look, and wrap each tensor in a mapping."""
    state_path = folder / "zero" / _STATE
    state = _load(state_path)
    state["ds_version"] = _load(folder / _MODEL_3)["ds_version"]
    torch.save(state, state_path)
    step = state["optimizer_state_dict"]["state"][0]["step"]
    for weights in list((folder / "zero").rglob("fp32.pt")):
        for name in _TENSORS:
            path = weights.with_name(name)
            torch.save({"param": _load(path)}, path)
        torch.save(step, weights.with_name("step.pt"))
    shutil.copyfile(folder / _MODEL_3, folder / _MODEL_1_2)


def _load(path: Path) -> Any:  # noqa: ANN401 - what torch.load returns
    return torch.load(path, map_location="cpu", weights_only=False)
