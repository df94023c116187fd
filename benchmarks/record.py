"""Where a figure was measured: machine and commit, stored with every result."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def store(path: Path, result: dict[str, Any]) -> None:
    """Write ``result`` with machine, commit and time as indented JSON."""
    path.parent.mkdir(exist_ok=True)
    stamped = {
        **result,
        "machine": machine(),
        "commit": commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    path.write_text(json.dumps(stamped, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Return processor, cores, load, system and Python."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return the commit, with ``-dirty`` when the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
