"""What the agent's variables become, and which ones are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.trainer import Job

from frenzy_shared.errors import Misconfigured
from frenzy_trainer.environment import read_emulation, read_environment, read_json
from frenzy_trainer.run import read_run

VARIABLES = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "FRENZY_ATTEMPT": "3",
    "FRENZY_PLAN": "/a/plan.json",
    "FRENZY_DEEPSPEED_CONFIG": "/a/deepspeed.json",
    "FRENZY_CHECKPOINT_DIR": "/c/job",
    "FRENZY_REPORT_FILE": "/a/report.jsonl",
    "FRENZY_DATA": "/d/text",
}


def test_reads_a_rank() -> None:
    environment = read_environment({**VARIABLES, "FRENZY_EMULATED_MEMORY_BYTES": "1024"})
    assert (environment.rank, environment.world_size, environment.attempt) == (1, 2, 3)
    assert environment.tokenizer is None
    assert environment.resume_from is None
    assert environment.emulation is not None
    assert (environment.emulation.memory_bytes, environment.emulation.speed) == (1024, 1.0)


def test_a_real_device_has_no_emulation() -> None:
    assert read_emulation({}) is None


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_every_variable_is_needed(name: str) -> None:
    with pytest.raises(Misconfigured, match=f"{name} is not set"):
        read_environment({key: value for key, value in VARIABLES.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "-1"),
        ("WORLD_SIZE", "two"),
        ("FRENZY_EMULATED_SPEED", "0"),
        ("FRENZY_EMULATED_MEMORY_BYTES", "nan"),
        ("FRENZY_EMULATED_MEMORY_BYTES", "96MiB"),
    ],
)
def test_wrong_numbers_are_named(name: str, value: str) -> None:
    with pytest.raises(Misconfigured, match=name):
        read_environment({**VARIABLES, name: value})


def test_unreadable_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for content in (None, "{", "[]"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(Misconfigured, match=r"plan\.json"):
            read_json(path)


def run_of(folder: Path, job: Job, *, world_size: int = 1, **changes: Any) -> Any:
    plan = {"spec": job.spec_document, "plan": job.plan_document}
    (folder / "plan.json").write_text(json.dumps({**plan, **changes}))
    (folder / "deepspeed.json").write_text(json.dumps(job.deepspeed_document))
    variables = {
        **VARIABLES,
        "WORLD_SIZE": str(world_size),
        "FRENZY_PLAN": str(folder / "plan.json"),
        "FRENZY_DEEPSPEED_CONFIG": str(folder / "deepspeed.json"),
    }
    return read_run(read_environment(variables))


def test_the_length_of_a_run(tmp_path: Path) -> None:
    def steps(**spec: Any) -> int:
        job = Job(data=tmp_path, spec={"max_steps": None, **spec})
        return int(run_of(tmp_path, job).total_steps(num_sequences=9))

    assert steps(max_steps=7) == 7
    assert steps() == 5, "one epoch of 9 sequences, 2 at a time"
    assert steps(epochs=2.0) == 9
    assert steps(epochs=0.01) == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"world_size": 2}, "the plan has 1 ranks, WORLD_SIZE is 2"),
        ({"plan": {}}, "is not a plan"),
        ({"spec": {}}, "is not a plan"),
    ],
)
def test_a_plan_that_does_not_belong_here(
    tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        run_of(tmp_path, Job(data=tmp_path), **options)


def test_the_global_batch_is_the_specifications(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="trains 2 sequences per step, the job asks for 8"):
        run_of(tmp_path, Job(data=tmp_path, spec={"global_batch_size": 8}))
