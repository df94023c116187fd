"""MARP's tape against transformers' own modules, for every architecture that is known."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.families import FAMILIES

from frenzy_shared.catalog.causal import CAUSAL_MODEL_TYPES
from frenzy_shared.catalog.families import RULES

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def printed():
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.family_peaks"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
        env={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_known_architecture_is_counted_to_the_block(printed):
    rows = printed[1:]
    assert {row["case"][0] for row in rows} == set(FAMILIES)
    for row in rows:
        counted, predicted = row["counted"], row["predicted"]
        assert predicted["parameters"] == counted["parameters"], row
        # A few scalars and tables are left out, and a mask that only the fourth layer would use.
        assert abs(counted["kept"] - predicted["kept"]) <= 12 * 512, row
        assert predicted["peak"] == pytest.approx(counted["peak"], rel=0.015), row


def test_every_rule_has_a_configuration_to_check_it_with():
    assert {config["model_type"] for config in FAMILIES.values()} == set(RULES)
    assert set(RULES) <= CAUSAL_MODEL_TYPES


def test_the_list_of_decoders_is_that_of_the_installed_library(printed):
    assert set(printed[0]) == CAUSAL_MODEL_TYPES
