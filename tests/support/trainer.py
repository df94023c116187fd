"""Run the built-in trainer as a gang of real rank processes, and read what they reported."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TINY_GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 256,
    "bos_token_id": None,
    "eos_token_id": None,
}
TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": 256,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


@dataclass(frozen=True)
class RankResult:
    """How one rank ended and everything it said."""

    exit_code: int
    stdout: str
    stderr: str
    reports: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [report for report in self.reports if report["kind"] == kind]

    @property
    def losses(self) -> list[float]:
        return [report["loss"] for report in self.of("step")]

    @property
    def summary(self) -> dict[str, Any]:
        assert self.exit_code in {0, 143}, self.stderr[-4000:]
        return self.of("summary")[0]

    @property
    def failure(self) -> dict[str, Any]:
        return self.of("failure")[0]


@dataclass
class Gang:
    """The rank processes of one attempt, started by ``start_gang``."""

    processes: list[subprocess.Popen[bytes]]
    folder: Path

    def wait(self, timeout: float = 120) -> list[RankResult]:
        try:
            for process in self.processes:
                process.wait(timeout)
        finally:
            self.kill()
        return [self._result(rank) for rank in range(len(self.processes))]

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(number)

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def reports(self, rank: int = 0) -> list[dict[str, Any]]:
        path = self.folder / "ranks" / str(rank) / "report.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _result(self, rank: int) -> RankResult:
        folder = self.folder / "ranks" / str(rank)
        return RankResult(
            exit_code=self.processes[rank].returncode,
            stdout=(folder / "stdout.log").read_text(),
            stderr=(folder / "stderr.log").read_text(),
            reports=self.reports(rank),
        )


@dataclass(kw_only=True)
class Job:
    """A small job; ``spec``, ``parallelism`` and ``deepspeed`` override its defaults."""

    data: Path
    model: Mapping[str, Any] = field(default_factory=lambda: dict(TINY_GPT2))
    ranks: int = 1
    zero_stage: int = 1
    micro_batch: int = 2
    accumulation: int = 1
    precision: str = "bf16"
    checkpointing: str = "none"
    offload: str = "none"
    memory_bytes: int | None = 512 * 1024**2
    speed: float | None = 1.0  # None and no memory: a real device
    spec: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None

    @property
    def spec_document(self) -> dict[str, Any]:
        return {
            "model": dict(self.model),
            "data": f"node:{self.data}",
            "sequence_length": 32,
            "global_batch_size": self.micro_batch * self.accumulation * self.ranks,
            "max_steps": 3,
            "learning_rate": 1e-3,
            **self.spec,
        }

    @property
    def plan_document(self) -> dict[str, Any]:
        band = {"low": 0, "expected": 0, "high": 0}
        return {
            "id": "plan-test",
            "kind": "emulated-test",
            "device_count": self.ranks,
            "single_node": False,
            "parallelism": {
                "zero_stage": self.zero_stage,
                "data": self.ranks,
                "tensor": 1,
                "pipeline": 1,
                "micro_batch_size": self.micro_batch,
                "gradient_accumulation_steps": self.accumulation,
                "precision": self.precision,
                "activation_checkpointing": self.checkpointing,
                "reduce_bucket_elements": 100_000,
                "offload": self.offload,
            },
            "memory": {
                **dict.fromkeys(("allocated", "reserved", "device", "required"), band),
                "moment": "",
                "terms": [],
                "mode": "test",
            },
            "speed": {
                "step_s": 0.0,
                "tokens_per_s": 0.0,
                "total_s": 0.0,
                "device_hours": 0.0,
                "energy_joules": 0.0,
                "model_flops_utilization": 0.0,
            },
            "deepspeed_config": self.deepspeed_document,
        }

    @property
    def deepspeed_document(self) -> dict[str, Any]:
        if self.deepspeed is not None:
            return dict(self.deepspeed)
        spec = self.spec_document
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": self.accumulation,
            "train_batch_size": self.micro_batch * self.accumulation * self.ranks,
            "steps_per_print": 10**9,
            "gradient_clipping": 1.0,
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": spec["learning_rate"], "weight_decay": 0.0, "torch_adam": True},
            },
            "zero_optimization": {
                "stage": self.zero_stage,
                "reduce_bucket_size": 100_000,
                "allgather_bucket_size": 100_000,
                "overlap_comm": False,
                "contiguous_gradients": True,
            },
        }
        if self.zero_stage == 3:
            config["zero_optimization"] |= {
                "stage3_prefetch_bucket_size": 50_000,
                "stage3_param_persistence_threshold": 0,
                "stage3_max_live_parameters": 100_000,
            }
        if self.offload != "none":
            place = {"device": "cpu", "pin_memory": False}
            config["zero_optimization"]["offload_optimizer"] = place
            config["zero_force_ds_cpu_optimizer"] = False
        if self.offload == "parameters":
            config["zero_optimization"]["offload_param"] = {"device": "cpu", "pin_memory": False}
        if self.precision == "bf16":
            config["bf16"] = {"enabled": True}
        return config


def start_gang(
    job: Job,
    folder: Path,
    *,
    attempt: int = 1,
    resume_from: Path | None = None,
    continues: Mapping[str, Any] | None = None,
    tokenizer: Path | None = None,
    argv: Sequence[str] = ("-m", "frenzy_trainer"),
    environment: Mapping[str, str] | None = None,
    prepare_rank: Callable[[], None] | None = None,
) -> Gang:
    """Write what the node agent writes into ``folder`` and start every rank.

    Ranks that ``continues`` a plan's shape get ready and wait for ``release.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plan = {
        "job": "job-test",
        "attempt": attempt,
        "rank_devices": [f"gpu-{rank}" for rank in range(job.ranks)],
        "continues": continues,
        "spec": job.spec_document,
        "plan": job.plan_document,
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "deepspeed.json").write_text(json.dumps(job.deepspeed_document))
    port = _free_port()
    processes = []
    for rank in range(job.ranks):
        home = folder / "ranks" / str(rank)
        home.mkdir(parents=True, exist_ok=True)
        variables = _environment(job, folder, rank, port, attempt)
        if resume_from is not None:
            variables["FRENZY_RESUME_FROM"] = str(resume_from)
        if continues is not None:
            variables["FRENZY_RELEASE_FILE"] = str(folder / "release.json")
        if tokenizer is not None:
            variables["FRENZY_TOKENIZER"] = str(tokenizer)
        with (home / "stdout.log").open("wb") as out, (home / "stderr.log").open("wb") as err:
            processes.append(
                subprocess.Popen(
                    [sys.executable, *argv],
                    env={**variables, **(environment or {})},
                    cwd=folder,
                    stdout=out,
                    stderr=err,
                    preexec_fn=prepare_rank,
                )
            )
    return Gang(processes, folder)


def run_gang(job: Job, folder: Path, **options: Any) -> list[RankResult]:
    """Start a gang and wait for it."""
    return start_gang(job, folder, **options).wait()


def write_text(path: Path, *, size: int = 20_000) -> Path:
    """Write ``size`` bytes of the same English-like text and return its path."""
    words = "the memory of a device holds weights gradients moments and activations".split()
    text = " ".join(words[(i * i + i // 3) % len(words)] for i in range(size // 6))
    path.write_text((text * 2)[:size])
    return path


def _environment(job: Job, folder: Path, rank: int, port: int, attempt: int) -> dict[str, str]:
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/tmp"),
        "RANK": str(rank),
        "WORLD_SIZE": str(job.ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(job.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "FRENZY_JOB_ID": "job-test",
        "FRENZY_ATTEMPT": str(attempt),
        "FRENZY_PLAN": str(folder / "plan.json"),
        "FRENZY_DEEPSPEED_CONFIG": str(folder / "deepspeed.json"),
        "FRENZY_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "FRENZY_REPORT_FILE": str(folder / "ranks" / str(rank) / "report.jsonl"),
        "FRENZY_DATA": str(job.data),
    }
    if job.speed is not None:
        variables["FRENZY_EMULATED_SPEED"] = str(job.speed)
    if job.memory_bytes is not None:
        variables["FRENZY_EMULATED_MEMORY_BYTES"] = str(job.memory_bytes)
    return variables


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
