"""``python -m benchmarks.host``: RAM and disk of real runs against what plans say of them."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.memory.configurations import KIND, Configuration
from benchmarks.memory.runs import compare
from benchmarks.record import store

from frenzy_marp.core.planner import plan_job
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

EXPECTED: Final = {"disk_error": 0.02, "ram_error": 0.15}
RESULT: Final = Path(__file__).parent / "results" / "host.json"
_RESUMING: Final = "a share of the optimizer's states while resuming"  # these runs do not


def _decoder(width: int, layers: int, vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_embd": width,
        "n_layer": layers,
        "n_head": width // 64,
        "n_positions": 256,
        "vocab_size": vocabulary,
    }


MODELS: Final = {
    "1M": _decoder(128, 4, 256),
    "12M": _decoder(384, 6, 4_000),
    "67M": _decoder(768, 6, 32_000),
}


def main() -> int:
    """Return 0 when every error is inside its range; with a model's name run that one."""
    if len(sys.argv) > 1:
        print(json.dumps(_run(sys.argv[1])))
        return 0
    runs = {name: _in_a_process_of_its_own(name) for name in MODELS}
    worst = {
        f"{part}_error": max(run[f"{part}_error"] for run in runs.values())
        for part in ("disk", "ram")
    }
    inside = all(worst[name] <= limit for name, limit in EXPECTED.items())
    result = {"runs": runs, "worst": worst, "expected_at_most": EXPECTED, "inside": inside}
    store(RESULT, result)
    print(json.dumps(result))
    return 0 if inside else 1


def _in_a_process_of_its_own(name: str) -> dict[str, float]:
    """Run one model; the system counts the largest child of a process once and for all."""
    command = [sys.executable, "-m", "benchmarks.host", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run(name: str) -> dict[str, float]:
    spec = {
        "model": MODELS[name],
        "data": "node:/any",
        "sequence_length": 128,
        "global_batch_size": 2,
        "max_steps": 2,
        "resources": {"gpus": 1},
    }
    host = plan_job(training_setup(parse_spec(spec)), [KIND]).plans[0].host
    if host is None:
        raise AssertionError("plans say what they take of their host")
    with tempfile.TemporaryDirectory() as folder:
        compare(Configuration(name=name, spec=spec), Path(folder))
        written = [path for path in Path(folder, "checkpoints").rglob("*") if path.is_file()]
        disk = sum(path.stat().st_size for path in written)
    ram = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    expected = sum(term.size_bytes for term in host.ram if term.name != _RESUMING)
    return {
        "ram_bytes": ram,
        "predicted_ram_bytes": expected,
        "ram_error": round(abs(expected / ram - 1), 3),
        "disk_bytes": disk,
        "predicted_disk_bytes": host.disk_bytes,
        "disk_error": round(abs(host.disk_bytes / disk - 1), 4),
    }


if __name__ == "__main__":
    sys.exit(main())
