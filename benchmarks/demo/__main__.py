"""``python -m benchmarks.demo``: run `frenzy demo`, check predicted against observed, store it."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.record import store

EXPECTED = {"wall_s": 240.0, "worst_memory_error": 0.10}
RESULT = Path(__file__).parent / "results" / "demo.json"


def main() -> int:
    """Return 0 when every job ended as it must and the figures are in their range."""
    frenzy = Path(sys.executable).parent / "frenzy"
    shown = subprocess.run(
        [str(frenzy), "demo", "-o", "json"], stdout=subprocess.PIPE, text=True, check=True
    )
    result = json.loads(shown.stdout.splitlines()[-1])
    trained = [job for job in result["jobs"] if job["state"] == "SUCCEEDED"]
    refused = [job["name"] for job in result["jobs"] if job["state"] == "REFUSED"]
    worst = max(
        abs(job["predicted_peak_bytes"] / job["observed_peak_bytes"] - 1) for job in trained
    )
    falling = all(job["loss_last"] < job["loss_first"] for job in trained)
    inside = (
        len(trained) == 3
        and refused == ["impossible"]
        and falling
        and result["wall_s"] < EXPECTED["wall_s"]
        and worst < EXPECTED["worst_memory_error"]
    )
    summary = {"inside": inside, "worst_memory_error": round(worst, 4), "expected_below": EXPECTED}
    store(RESULT, {**result, **summary})
    print(json.dumps(summary))
    return 0 if inside else 1


if __name__ == "__main__":
    sys.exit(main())
