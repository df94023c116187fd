"""The training loop of one rank: batches in, optimizer steps and reports out."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from frenzy_trainer.data import Dataset
from frenzy_trainer.errors import TrainingDiverged
from frenzy_trainer.memory import peak_memory
from frenzy_trainer.pacing import Pacer
from frenzy_trainer.run import Run
from frenzy_trainer.sampling import micro_batch_positions
from frenzy_trainer.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One optimizer step. ``loss`` is the mean over the global batch.

    ``stop`` is true on every rank when any rank was asked to stop.
    """

    step: int  # optimizer steps done so far, this one included
    loss: float
    learning_rate: float
    seconds: float
    stop: bool


@dataclass(kw_only=True)
class Trainer:
    """Run optimizer steps with a DeepSpeed engine. ``stop_requested`` is asked once per step."""

    run: Run
    engine: Any
    dataset: Dataset
    schedule: Schedule
    stop_requested: Callable[[], bool]
    clock: Callable[[], float] = field(default=time.perf_counter)

    def steps(self, first: int) -> Iterator[StepResult]:
        """Yield the result of each optimizer step from number ``first`` (0 = none done yet)."""
        emulation = self.run.environment.emulation
        pacer = Pacer(emulation.speed if emulation is not None else 1.0)
        for step in range(first, self.schedule.total_steps):
            started = self.clock()
            pacer.start()
            rate = self._set_learning_rate(step)
            loss, stop = self._agree(self._forward_backward(step))
            if not math.isfinite(loss):
                raise TrainingDiverged(
                    f"the loss of step {step + 1} is {loss}",
                    suggestions=["lower learning_rate, add warmup_steps, or use fp32"],
                )
            pacer.finish()
            yield StepResult(
                step=step + 1,
                loss=loss,
                learning_rate=rate,
                seconds=self.clock() - started,
                stop=stop,
            )

    def _set_learning_rate(self, step: int) -> float:
        rate = self.schedule.learning_rate(step)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _forward_backward(self, step: int) -> torch.Tensor:
        """Return this rank's mean loss over its micro-batches, still on the device."""
        accumulation = self.run.plan.parallelism.gradient_accumulation_steps
        total = torch.zeros(1, device=self.engine.device)
        for micro_step in range(accumulation):
            tokens = self._micro_batch(step, micro_step)
            loss = self.engine(input_ids=tokens, labels=tokens).loss
            total += loss.detach() / accumulation
            self.engine.backward(loss)
            # Gone before the optimizer runs: the memory model counts on it.
            del loss, tokens
            self.engine.step()
        return total

    def _micro_batch(self, step: int, micro_step: int) -> torch.Tensor:
        parallelism = self.run.plan.parallelism
        positions = micro_batch_positions(
            step=step,
            micro_step=micro_step,
            rank=self.run.environment.rank,
            data_parallel=parallelism.data,
            micro_batch=parallelism.micro_batch_size,
            accumulation=parallelism.gradient_accumulation_steps,
        )
        host = torch.from_numpy(self.dataset.batch(positions))
        # An operator's output, so that the accountant sees it where a GPU would hold it.
        return torch.empty(host.shape, dtype=host.dtype, device=self.engine.device).copy_(host)

    def _agree(self, loss: torch.Tensor) -> tuple[float, bool]:
        """Average the loss over ranks and learn whether anyone must stop, in one collective."""
        stop = torch.full_like(loss, float(self.stop_requested()))
        both = torch.cat([loss, stop])
        dist.all_reduce(both)
        return float(both[0]) / self.run.environment.world_size, bool(both[1] > 0)


def step_values(run: Run, result: StepResult) -> dict[str, float | None]:
    """Return what the report of a step says besides its number."""
    peak = peak_memory()
    return {
        "loss": result.loss,
        "learning_rate": result.learning_rate,
        "tokens_per_second": run.tokens_per_step / result.seconds,
        "step_seconds": result.seconds,
        "peak_allocated_bytes": peak.allocated_bytes,
        "peak_reserved_bytes": peak.reserved_bytes,
    }
