"""Plans that the planner emits, in DeepSpeed's real engine: it takes them, and takes that much."""

import json
import subprocess
import sys
from collections import Counter

import pytest

SEED, COUNT = 1119, 4  # every stage, and what differs most between them
WITHIN = 0.03  # of the number that ranked the plan

pytestmark = pytest.mark.timeout(600)  # the imports and 4 engines, on a loaded machine


@pytest.fixture(scope="module")
def rows():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine.compare", str(SEED), str(COUNT)],
        capture_output=True,
        text=True,
        timeout=560,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_emitted_configuration_is_taken_by_deepspeed(rows):
    assert len(rows) == COUNT
    assert [row["cell"] for row in rows if "failed" in row] == []


def test_the_engine_takes_what_ranked_the_plan(rows):
    errors = {row["cell"]: row["error"] for row in rows}
    assert {cell: error for cell, error in errors.items() if abs(error) > WITHIN} == {}


def test_the_sample_is_varied(rows):
    words = Counter(word for row in rows for word in row["cell"].split())
    assert {"z0", "z1", "z2", "z3"} <= words.keys()
    assert {"ckpt-none", "ckpt-full"} <= words.keys()
    assert {"bf16", "fp32"} <= words.keys()
