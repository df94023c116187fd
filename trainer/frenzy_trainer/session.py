"""Train one rank from its first import of torch to the exported model."""

import signal
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Final

import torch.distributed as dist
from transformers import PreTrainedModel

from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import Loss
from frenzy_shared.errors import Misconfigured
from frenzy_trainer.accountant import Accountant
from frenzy_trainer.adapters import add_adapters
from frenzy_trainer.checkpoint import Checkpoints, Origin, Progress, find_origin
from frenzy_trainer.chunked import chunk_loss
from frenzy_trainer.console import say
from frenzy_trainer.data import Dataset
from frenzy_trainer.engine import start_distributed
from frenzy_trainer.errors import STOPPED_EXIT_CODE, Abandoned, CheckpointError
from frenzy_trainer.export import export_model
from frenzy_trainer.memory import peak_memory
from frenzy_trainer.model import build_model
from frenzy_trainer.offload import start_placed_engine
from frenzy_trainer.reports import ReportFile
from frenzy_trainer.run import Run
from frenzy_trainer.schedule import Schedule
from frenzy_trainer.train import StepResult, Trainer, step_values
from frenzy_trainer.universal import CONFIG
from frenzy_trainer.waiting import await_release

_LINES_PER_RUN: Final = 100
_MIB: Final = 1024**2


@dataclass
class StopFlag:
    """Set by SIGTERM. A step in progress is finished first: saving is collective."""

    requested: bool = False

    def watch(self) -> None:
        """Take SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True


@dataclass
class Tally:
    """What the summary says about the steps of this attempt."""

    loss_first: float | None = None
    loss_last: float | None = None
    steps: int = 0
    seconds: float = 0.0
    last_step: int = field(default=0)

    def add(self, result: StepResult) -> None:
        """Take one more step into account."""
        self.loss_first = result.loss if self.loss_first is None else self.loss_first
        self.loss_last = result.loss
        self.steps += 1
        self.seconds += result.seconds
        self.last_step = result.step


def train_rank(run: Run, dataset: Dataset, report: ReportFile, stop: StopFlag) -> int:
    """Train to the end, or to the first step after SIGTERM. Return the exit code."""
    start_distributed(emulated=run.environment.emulation is not None)
    with _device(run):
        try:
            code = _train(run, dataset, report, stop)
        except Abandoned:
            raise
        except BaseException:
            # How high memory went is what the next plan is made from, above all after an OOM.
            report.summary(**_peaks())
            raise
    dist.barrier()
    dist.destroy_process_group()
    return code


def _device(run: Run) -> AbstractContextManager[object]:
    emulation = run.environment.emulation
    if emulation is None:
        return nullcontext()
    return Accountant(emulation.memory_bytes, device=run.environment.rank)


def _train(run: Run, dataset: Dataset, report: ReportFile, stop: StopFlag) -> int:
    waits = run.environment.release_file is not None
    origin = None if waits else find_origin(run)
    converts = run.converts if waits else origin is not None and origin.universal
    model = _model(run)
    engine = start_placed_engine(model, {**run.deepspeed_config, **(CONFIG if converts else {})})
    trainer = Trainer(
        run=run,
        engine=engine,
        dataset=dataset,
        schedule=Schedule(
            kind=run.spec.lr_scheduler,
            peak=run.spec.learning_rate,
            warmup_steps=run.spec.warmup_steps,
            total_steps=run.total_steps(dataset.num_sequences),
        ),
        stop_requested=lambda: stop.requested,
    )
    checkpoints = Checkpoints(run, engine)
    if waits:
        origin = _wait(run, report, stop, converts=converts)
    tally = _restore(run, checkpoints, origin)
    stopped = _steps(trainer, checkpoints, report, tally)
    folder = None if stopped else export_model(run, engine)
    _summarise(run, report, tally, folder)
    return STOPPED_EXIT_CODE if stopped else 0


def _model(run: Run) -> PreTrainedModel:
    parallelism = run.plan.parallelism
    model = build_model(
        run.model_config,
        precision=parallelism.precision,
        attention=Attention(run.spec.attention),
        checkpointing=parallelism.activation_checkpointing,
        seed=run.spec.seed,
    )
    if run.architecture.adapters is not None:
        add_adapters(model, run.architecture.adapters)
    if parallelism.loss is Loss.CHUNKED:
        chunk_loss(model, run.architecture.chunk_length(run.sequence_length))
    return model


def _wait(run: Run, report: ReportFile, stop: StopFlag, *, converts: bool) -> Origin | None:
    """Say that this rank is ready, and find what the attempt before leaves to go on from."""
    if run.environment.release_file is None:
        raise Misconfigured("there is nothing to wait for")
    dist.barrier()  # connects the ranks, and none is ready before all are
    report.warm()
    resume_from = await_release(run.environment.release_file, lambda: stop.requested)
    environment = replace(run.environment, resume_from=resume_from)
    origin = find_origin(replace(run, environment=environment))
    if origin is not None and origin.universal is not converts:
        raise CheckpointError(
            f"checkpoint {origin.folder} was made under another plan than "
            f"{run.continues}, which this attempt is ready for"
        )
    return origin


def _restore(run: Run, checkpoints: Checkpoints, origin: Origin | None) -> Tally:
    checkpoints.clear_leftovers()
    if origin is None:
        return Tally()
    progress = checkpoints.restore(origin)
    if run.environment.rank == 0:
        how = ", converted to this plan" if origin.universal else ""
        say(f"resumed from step {progress.step} ({origin.folder}{how})")
    return Tally(loss_first=progress.loss_first, last_step=progress.step)


def _steps(trainer: Trainer, checkpoints: Checkpoints, report: ReportFile, tally: Tally) -> bool:
    """Run the steps that are left, saving when it is time. Return whether SIGTERM ended them."""
    run, total = trainer.run, trainer.schedule.total_steps
    every = run.spec.checkpoint.every_steps
    for result in trainer.steps(tally.last_step):
        tally.add(result)
        report.step(result.step, **step_values(run, result))
        if run.environment.rank == 0 and _is_shown(result.step, total):
            _show(run, result, total)
        due = every is not None and result.step % every == 0
        if result.stop or due or result.step == total:
            started = time.perf_counter()
            checkpoints.save(Progress(step=result.step, loss_first=tally.loss_first))
            if run.environment.rank == 0:
                report.checkpoint(result.step)
                taken = time.perf_counter() - started
                say(f"checkpoint of step {result.step} saved in {taken:.1f} s")
        if result.stop and result.step < total:
            return True
    return False


def _is_shown(step: int, total: int) -> bool:
    return step in {1, total} or step % max(1, total // _LINES_PER_RUN) == 0


def _show(run: Run, result: StepResult, total: int) -> None:
    peak = peak_memory().allocated_bytes
    memory = f" peak {peak / _MIB:.0f} MiB" if peak is not None else ""
    speed = run.tokens_per_step / result.seconds
    say(f"step {result.step}/{total} loss {result.loss:.4f} tok/s {speed:.0f}{memory}")


def _summarise(run: Run, report: ReportFile, tally: Tally, folder: Path | None) -> None:
    speed = run.tokens_per_step * tally.steps / tally.seconds if tally.seconds else None
    report.summary(
        **_peaks(),
        loss_first=tally.loss_first,
        loss_last=tally.loss_last,
        tokens_per_second=speed,
        last_step=tally.last_step,
        model_dir=str(folder) if folder else None,
    )


def _peaks() -> dict[str, int | None]:
    peak = peak_memory()
    return {
        "peak_allocated_bytes": peak.allocated_bytes,
        "peak_reserved_bytes": peak.reserved_bytes,
    }
