"""Cells: what the planner says of a plan, and what DeepSpeed's engine takes for it.

``python -m benchmarks.engine.compare SEED COUNT`` prints some as JSON lines and stores nothing.
"""

import contextlib
import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from typing import Any

from benchmarks.engine.cells import Cell, draw

from frenzy_marp.core.planner import plan_job
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.plan import Loss, ResourcePlan
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.trace import EngineQuestion, TraceRequest

# Emulated: on real GPUs AdamW updates all tensors at once, which a CPU's engine does not.
ROOMY = KindSummary(
    kind="emulated-roomy",
    memory_bytes=2**50,
    compute_capability="",
    emulated=True,
    relative_speed=1.0,
    node_counts=(64,),
)


def traces(cells: Iterable[Cell], processes: int = 1) -> Iterator[dict[str, Any]]:
    """Trace every cell in a process of its own, forked: the imports take longer than a cell."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    with _quiet():  # DeepSpeed speaks on the standard output
        for module in ("deepspeed", "frenzy_trainer.trace.engine"):  # once, not in every child
            importlib.import_module(module)
    with get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_trace, cells, chunksize=1)


def judged(cell: Cell, trace: dict[str, Any]) -> dict[str, Any]:
    """Put what the planner says now beside a trace."""
    if "failed" in trace:
        return trace
    plan, moments = planned(cell), trace["moments"]
    highest = max(moments, key=lambda name: moments[name])
    predicted = plan.memory.allocated.expected
    return {
        "cell": cell.name,
        "predicted": predicted,
        "traced": moments[highest],
        "error": round(predicted / moments[highest] - 1, 5),
        "moment": plan.memory.moment,
        "traced_moment": highest,
    }


def planned(cell: Cell) -> ResourcePlan:
    """Return the only plan that a cell's pins leave."""
    found = plan_job(training_setup(parse_spec(cell.spec)), [ROOMY])
    if not found.plans:
        raise RuntimeError(f"{cell.name}: {found.message}")
    return found.plans[0]


def key(cell: Cell) -> str:
    """Return what decides a trace: the model, the batch and the configuration, as a digest."""
    decides = json.dumps([cell.spec, dict(planned(cell).deepspeed_config)], sort_keys=True)
    return hashlib.sha256(decides.encode()).hexdigest()[:16]


def _trace(cell: Cell) -> dict[str, Any]:
    started = time.process_time()
    try:
        moments = _moments(cell, planned(cell))
    except Exception as error:  # noqa: BLE001 - one cell must not end the others
        return {"cell": cell.name, "failed": f"{type(error).__name__}: {error}"[:300]}
    seconds = round(time.process_time() - started, 2)
    return {"cell": cell.name, "key": key(cell), "moments": moments, "cpu_s": seconds}


def _moments(cell: Cell, plan: ResourcePlan) -> dict[str, int]:
    from frenzy_trainer.trace.engine import trace_engine  # noqa: PLC0415 - torch
    from frenzy_trainer.trace.models import ModelSource  # noqa: PLC0415 - torch

    shape, setup = plan.parallelism, training_setup(parse_spec(cell.spec))
    chunk = setup.model.chunk_length(setup.sequence_length) if shape.loss is Loss.CHUNKED else None
    request = TraceRequest(
        model=cell.spec["model"],
        sequence_length=cell.spec["sequence_length"],
        micro_batch_size=shape.micro_batch_size,
        precision=shape.precision,
        attention=cell.spec["attention"],
        checkpointing=shape.activation_checkpointing,
        adapters=setup.model.adapters,
        loss_chunk=chunk,
        engine=EngineQuestion(config=dict(plan.deepspeed_config), ranks=shape.world_size),
    )
    with _quiet():
        found = trace_engine(ModelSource(request), request.engine)
    return {moment.name: moment.size_bytes for moment in found.moments}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep DeepSpeed's lines off the standard output, where the results go."""
    sys.stdout.flush()
    saved, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
        os.close(null)


if __name__ == "__main__":
    sample = {cell.name: cell for cell in draw(int(sys.argv[1]))[: int(sys.argv[2])]}
    for found in traces(sample.values()):
        print(json.dumps(judged(sample[found["cell"]], found)), flush=True)
    os._exit(0)  # nobody waits for a process group that does not exist
