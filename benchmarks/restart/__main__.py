"""``python -m benchmarks.restart [repetitions]``: what a move costs real training, both ways."""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from benchmarks.record import store
from tests.support.installation import Installation, until
from tests.support.moving import gaps, steps, submit, system, view

RESULT = Path(__file__).parent / "results" / "restart.json"
EXPECTED = {"warm_of_cold": 0.5}  # most, of the medians
SLOW, FAST = "emulated-rtx2080ti", "emulated-a100-40"
EMULATED = f"node-a:{SLOW}:1:256MiB:0.5;node-b:{FAST}:2:256MiB:1.0"
WAYS: Mapping[str, str] = {"warm": "true", "cold": "false"}
_WITHIN_S = 600.0


def main(repetitions: int = 5) -> int:
    """Return 0 when going on with a warm successor costs less than half of a cold restart."""
    with tempfile.TemporaryDirectory() as folder, _systems(Path(folder)) as systems:
        moves: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for number in range(repetitions):
            for way, (home, api) in systems.items():  # in turn: the machine's load hits both alike
                moves[way].append(_move(home, api, f"{way}-{number}"))
                print(way, moves[way][-1], flush=True)
    figures = {way: _figures(found) for way, found in moves.items()}
    ratio = figures["warm"]["gap_s"]["median"] / figures["cold"]["gap_s"]["median"]
    result = {
        "repetitions": repetitions,
        **figures,
        "warm_of_cold": round(ratio, 3),
        "expected_below": EXPECTED,
        "inside": ratio < EXPECTED["warm_of_cold"],
        "moves": moves,
    }
    store(RESULT, result)
    print(json.dumps({key: result[key] for key in ("warm", "cold", "warm_of_cold", "inside")}))
    return 0 if result["inside"] else 1


@contextmanager
def _systems(folder: Path) -> Iterator[dict[str, tuple[Installation, httpx.Client]]]:
    homes = {way: Installation(folder / way) for way in WAYS}
    warm, cold = (
        system(homes[way], EMULATED, FRENZY_MAKE_BEFORE_BREAK=value) for way, value in WAYS.items()
    )
    try:
        with warm as warm_api, cold as cold_api:
            yield {"warm": (homes["warm"], warm_api), "cold": (homes["cold"], cold_api)}
    finally:
        for home in homes.values():
            home.destroy()


def _move(home: Installation, api: httpx.Client, name: str) -> dict[str, Any]:
    """Let one job train on the slow device, offer it two fast ones, and see how it gets there."""
    home.run("nodes", "drain", "node-b")
    job = submit(home, name, kinds=[SLOW, FAST], max_steps=100_000, global_batch_size=8)
    until(lambda: (view(api, job).get("last_step") or 0) >= 1, "it trains", _WITHIN_S)
    home.run("nodes", "undrain", "node-b")
    until(lambda: len(gaps(home, job)) == 1, "it trains elsewhere", _WITHIN_S)
    home.run("cancel", job)
    until(lambda: view(api, job)["state"] == "CANCELLED", "it is over", _WITHIN_S)
    trained = [step.step for step in steps(home, job)]
    if trained != list(range(1, len(trained) + 1)):
        raise AssertionError(f"steps were lost or repeated: {trained}")
    (gap_s,) = gaps(home, job)
    return {"gap_s": gap_s, "since_stop_s": _since_stop(home, job)}


def _since_stop(home: Installation, job: str) -> dict[str, float]:
    """Return when events came after the order to stop, in seconds."""
    events = home.json("events", job)
    times = [(e["type"].split(".")[3], datetime.fromisoformat(e["time"])) for e in events]
    stopped = next(time for kind, time in times if kind == "preempted")
    kinds = ("checkpointed", "requeued", "placed", "starting", "started")
    return {
        kind: round((time - stopped).total_seconds(), 2)
        for kind, time in times
        if kind in kinds and time >= stopped
    }


def _figures(moves: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = sorted(move["gap_s"] for move in moves)
    median = round(statistics.median(seconds), 2)
    return {"gap_s": {"median": median, "min": seconds[0], "max": seconds[-1]}}


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
