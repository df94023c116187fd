"""Carry a checkpoint from one plan to another through DeepSpeed's universal format.

Plain checkpoints are sharded for one world size. The universal format has one file per
parameter and moment, which any world size loads. Between which plans that works is the rule of
``frenzy_shared.domain.continuation``, which the scheduler obeys as well.
"""

import contextlib
import io
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

# DeepSpeed refuses to convert a ZeRO-1/2 checkpoint whose saver did not declare this.
CLIENT_STATE: Final[dict[str, Any]] = {
    "universal_checkpoint_info": {"universal_checkpoint_version": 0.2}
}
CONFIG: Final[dict[str, Any]] = {"checkpoint": {"load_universal": True}}


def convert(source: Path, target: Path) -> None:
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
