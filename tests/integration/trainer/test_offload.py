"""Real gangs whose optimizer, and weights, are in the node's RAM: it is not the device's memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.trainer import TINY_LLAMA, Job, run_gang

from frenzy_marp.core.memory.analytical import predict_peak
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ParallelismPlan
from frenzy_shared.messages.codec import from_json
from frenzy_shared.messages.setup import trained_model
from frenzy_shared.messages.spec import parse_spec

WITHIN = 0.03  # what goes from host to device is not copied on a CPU
SPEC = {"max_steps": 4, "learning_rate": 1e-2, "checkpoint": {"every_steps": 2, "keep": 3}}


@pytest.fixture(scope="module")
def wide() -> dict:
    """Weights that matter beside the activations of a batch."""
    return {**TINY_LLAMA, "hidden_size": 128, "intermediate_size": 512}


def plan_of(job: Job) -> ParallelismPlan:
    return from_json(ParallelismPlan, job.plan_document["parallelism"])


def predicted(job: Job) -> int:
    model = trained_model(parse_spec(job.spec_document))
    return predict_peak(model, Attention.SDPA, 32, plan_of(job)).allocated


def test_an_offloaded_optimizer_trains_the_same_in_less_memory(
    text: Path, home: Path, wide: dict
) -> None:
    plain = Job(data=text, model=wide, zero_stage=2, micro_batch=2, accumulation=2, spec=SPEC)
    offloaded = replace(plain, offload="optimizer")
    (usual,) = run_gang(plain, home / "usual")
    (other,) = run_gang(offloaded, home / "offloaded")
    assert other.exit_code == 0, other.stderr
    assert other.losses == pytest.approx(usual.losses, abs=2e-3)
    peaks = [result.summary["peak_allocated_bytes"] for result in (usual, other)]
    assert peaks[1] < 0.5 * peaks[0]
    assert peaks[1] == pytest.approx(predicted(offloaded), rel=WITHIN)
