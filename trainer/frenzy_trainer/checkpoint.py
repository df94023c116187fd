"""Save and restore a run: DeepSpeed's own files in a step folder with a complete-or-absent name.

``<FRENZY_CHECKPOINT_DIR>/step-<n>/`` holds ``frenzy.json`` (which step, made under which plan)
and ``state/`` (written by every rank). Saving and restoring are collective: every rank calls
them at the same step.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

from frenzy_shared.domain.continuation import PlanShape, carries, shape_of
from frenzy_shared.domain.plan import Precision
from frenzy_trainer.environment import read_json
from frenzy_trainer.errors import CheckpointError
from frenzy_trainer.failures import is_communication_error
from frenzy_trainer.folders import clear_leftovers, publish
from frenzy_trainer.memory import host_memory
from frenzy_trainer.run import Run
from frenzy_trainer.universal import CLIENT_STATE, convert

_TAG: Final = "state"
_NOTE: Final = "frenzy.json"
_LEAST_KEPT: Final = 2  # the store may still point at the one before the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: optimizer steps done, and its very first loss."""

    step: int
    loss_first: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The checkpoint that an attempt starts from.

    ``universal``: it was made under another plan, and DeepSpeed must be told before it starts.
    """

    folder: Path
    progress: Progress
    universal: bool
    zero_stage: int


def find_origin(run: Run) -> Origin | None:
    """Return the checkpoint that FRENZY_RESUME_FROM names; None when this run starts anew.

    Raises:
        CheckpointError: it is absent, damaged, or of a plan that this one cannot continue.
    """
    folder = run.environment.resume_from
    if folder is None:
        return None
    note = _read_note(folder)
    former, now = _shape(note["plan"], folder), shape_of(run.plan.parallelism)
    if not carries(former, now):
        raise CheckpointError(
            f"checkpoint {folder} was made under {former}; "
            f"this attempt runs {now}, which cannot continue it",
            suggestions=["pin precision and resources.zero_stage to the former plan's"],
        )
    return Origin(
        folder=folder,
        progress=Progress(step=note["step"], loss_first=note["loss_first"]),
        universal=former != now,
        zero_stage=former.zero_stage,
    )


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one run, as one of its ranks sees them."""

    run: Run
    engine: Any

    def save(self, progress: Progress) -> None:
        """Write the folder of ``progress.step`` and drop the oldest beyond ``checkpoint.keep``.

        Raises:
            CheckpointError: nothing could be written; the former checkpoints are untouched.
        """
        folder = self.run.environment.checkpoint_dir
        temporary = folder / f".tmp-{self.run.environment.attempt}-{progress.step}"
        try:
            self._write(temporary, progress)
            dist.barrier()
            if self._leads:
                publish(temporary, folder / f"step-{progress.step}")
                self._drop_oldest()
            dist.barrier()
        except (OSError, RuntimeError) as error:
            if is_communication_error(error):
                raise
            if self._leads:
                shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(
                f"cannot save step {progress.step} in {folder}: {error}",
                suggestions=[
                    "free space on the checkpoint folder's disk, or lower checkpoint.keep"
                ],
            ) from error

    def restore(self, origin: "Origin") -> Progress:
        """Load ``origin`` into the engine.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        try:
            with host_memory():
                path = self._load_universal(origin) if origin.universal else self._load(origin)
        except Exception as error:
            if is_communication_error(error):
                raise
            raise CheckpointError(f"checkpoint {origin.folder} is damaged: {error}") from error
        if path is None:
            raise CheckpointError(f"checkpoint {origin.folder} has no {_TAG} folder")
        return origin.progress

    def clear_leftovers(self) -> None:
        """Remove what earlier attempts left half-written (rank 0 only)."""
        if self._leads:
            clear_leftovers(self.run.environment.checkpoint_dir, self.run.environment.attempt)

    @property
    def _leads(self) -> bool:
        return self.run.environment.rank == 0

    def _write(self, temporary: Path, progress: Progress) -> None:
        if self._leads:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            note = {**asdict(progress), "plan": asdict(shape_of(self.run.plan.parallelism))}
            (temporary / _NOTE).write_text(json.dumps(note), encoding="utf-8")
        dist.barrier()
        with host_memory():
            self.engine.save_checkpoint(
                str(temporary), tag=_TAG, client_state=dict(CLIENT_STATE), save_latest=False
            )

    def _load(self, origin: "Origin") -> str | None:
        path: str | None
        path, _ = self.engine.load_checkpoint(str(origin.folder), tag=_TAG)
        return path

    def _load_universal(self, origin: "Origin") -> str | None:
        environment = self.run.environment
        temporary = environment.checkpoint_dir / f".tmp-{environment.attempt}-universal"
        if self._leads:
            shutil.rmtree(temporary, ignore_errors=True)
            convert(
                origin.folder / _TAG,
                temporary / _TAG,
                from_stage=origin.zero_stage,
                to_stage=self.run.plan.parallelism.zero_stage,
            )
        dist.barrier()
        path: str | None
        path, _ = self.engine.load_checkpoint(str(temporary), tag=_TAG)
        dist.barrier()
        if self._leads:
            shutil.rmtree(temporary, ignore_errors=True)
        return path

    def _drop_oldest(self) -> None:
        folder = self.run.environment.checkpoint_dir
        steps = sorted(
            int(path.name.removeprefix("step-"))
            for path in folder.glob("step-*")
            if path.name.removeprefix("step-").isdecimal()
        )
        for step in steps[: -max(_LEAST_KEPT, self.run.spec.checkpoint.keep)]:
            shutil.rmtree(folder / f"step-{step}", ignore_errors=True)


def _read_note(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise CheckpointError(
            f"checkpoint {folder} does not exist on this node",
            suggestions=["the checkpoint folder must be shared by all nodes"],
        )
    note = read_json(folder / _NOTE)
    if not {"step", "loss_first", "plan"} <= note.keys():
        raise CheckpointError(f"checkpoint {folder} is damaged: {_NOTE} is incomplete")
    return note


def _shape(document: Mapping[str, Any], folder: Path) -> PlanShape:
    try:
        return PlanShape(
            zero_stage=document["zero_stage"],
            ranks=document["ranks"],
            precision=Precision(document["precision"]),
        )
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: {_NOTE}: {error}") from error
