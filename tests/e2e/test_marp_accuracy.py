"""MARP's prediction against what the real trainer reports, on a seeded draw.

FRENZY_ACCURACY_SEED chooses another draw; any must pass. All 24 configurations of a draw run in
``benchmarks/memory``.
"""

import os
from dataclasses import replace

import pytest
from benchmarks.memory.configurations import draw
from benchmarks.memory.runs import compare

SEED = int(os.environ.get("FRENZY_ACCURACY_SEED", "20261130"))
RUNS = int(os.environ.get("FRENZY_ACCURACY_RUNS", "6"))


@pytest.mark.slow
@pytest.mark.parametrize("configuration", draw(SEED, RUNS), ids=lambda c: c.name.replace(" ", "_"))
def test_the_observed_peak_is_within_ten_per_cent(configuration, tmp_path):
    result = compare(configuration, tmp_path)
    assert result.observed > 0
    assert abs(result.error) < 0.10, result


@pytest.mark.slow
def test_a_run_of_one_step_has_no_moments_before_it(tmp_path):
    [first] = draw(SEED, 1)
    one = replace(first, spec={**first.spec, "max_steps": 1})
    result = compare(one, tmp_path)
    assert abs(result.error) < 0.10, result
