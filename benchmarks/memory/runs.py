"""Run a configuration with the real trainer and compare its report with MARP's plan."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory.configurations import KIND, Configuration

from frenzy_marp.core.frenzy_2024 import published_peak
from frenzy_marp.core.planner import plan_job
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import JobSpec, parse_spec

_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Predicted and observed peak of the worst rank, in bytes."""

    name: str
    predicted: int
    observed: int
    published: int
    moment: str

    @property
    def error(self) -> float:
        """Return the relative error, positive when too much was predicted."""
        return self.predicted / self.observed - 1


def compare(configuration: Configuration, folder: Path) -> Comparison:
    """Plan one configuration, train it, and read the peaks from the ranks' reports."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "text"
    data.write_bytes(b"To be predicted is to be known, byte by byte, before it runs. " * 400)
    spec = parse_spec({**configuration.spec, "data": f"node:{data}"})
    setup = training_setup(spec)
    plan = plan_job(setup, [KIND]).plans[0]
    peaks = _train(spec, plan, data, folder)
    return Comparison(
        name=configuration.name,
        predicted=plan.memory.allocated.expected,
        observed=max(peaks),
        published=published_peak(
            setup.model,
            sequence_length=setup.sequence_length,
            micro_batch_size=plan.parallelism.micro_batch_size,
        ),
        moment=plan.memory.moment,
    )


def _train(spec: JobSpec, plan: ResourcePlan, data: Path, folder: Path) -> list[int]:
    document = {
        "job": "bench",
        "attempt": 1,
        "rank_devices": [f"gpu{rank}" for rank in range(plan.device_count)],
        "spec": spec.model_dump(mode="json", exclude_none=True),
        "plan": to_json(plan),
    }
    (folder / "plan.json").write_text(json.dumps(document))
    (folder / "deepspeed.json").write_text(json.dumps(plan.deepspeed_config))
    port = _free_port()
    ranks = [
        _start(rank, plan.device_count, port, data, folder) for rank in range(plan.device_count)
    ]
    try:
        codes = [process.wait(_TIMEOUT_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(codes):
        errors = [(folder / f"{rank}.err").read_text()[-2000:] for rank in range(len(ranks))]
        raise RuntimeError(f"ranks ended with {codes}: {errors}")
    return [_reported_peak(folder / f"{rank}.jsonl") for rank in range(plan.device_count)]


def _start(
    rank: int, world_size: int, port: int, data: Path, folder: Path
) -> "subprocess.Popen[bytes]":
    bin_folder = Path(sys.executable).parent
    environment = {
        "PATH": f"{bin_folder}:{os.environ.get('PATH', '')}",
        "HOME": str(folder),
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "FRENZY_JOB_ID": "bench",
        "FRENZY_ATTEMPT": "1",
        "FRENZY_PLAN": str(folder / "plan.json"),
        "FRENZY_DEEPSPEED_CONFIG": str(folder / "deepspeed.json"),
        "FRENZY_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "FRENZY_REPORT_FILE": str(folder / f"{rank}.jsonl"),
        "FRENZY_DATA": str(data),
        "FRENZY_EMULATED_MEMORY_BYTES": str(KIND.memory_bytes),
        "FRENZY_EMULATED_SPEED": "1.0",
    }
    with (folder / f"{rank}.out").open("wb") as out, (folder / f"{rank}.err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "frenzy_trainer"], env=environment, stdout=out, stderr=err
        )


def _reported_peak(path: Path) -> int:
    reports = [json.loads(line) for line in path.read_text().splitlines()]
    summary = next(report for report in reports if report["kind"] == "summary")
    return int(summary["peak_allocated_bytes"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
