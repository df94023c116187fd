"""Real gangs that train low-rank adapters beside frozen weights."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from tests.support.trainer import TINY_LLAMA, Job, run_gang

from frenzy_shared.messages.setup import trained_model
from frenzy_shared.messages.spec import parse_spec

SPEC = {
    "max_steps": 4,
    "method": "lora",
    "lora": {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    "learning_rate": 1e-2,
    "checkpoint": {"every_steps": 2, "keep": 3},
}


def test_adapters_train_resume_on_other_devices_and_are_exported(text: Path, home: Path) -> None:
    pair = Job(data=text, model=TINY_LLAMA, ranks=2, zero_stage=2, micro_batch=2, spec=SPEC)
    first, second = run_gang(pair, home / "adapters")
    assert first.exit_code == second.exit_code == 0, first.stderr
    assert first.losses == second.losses
    assert first.losses[-1] < first.losses[0]

    origin = home / "adapters" / "checkpoints" / "step-2"
    alone = Job(data=text, model=TINY_LLAMA, micro_batch=4, spec=SPEC)
    (resumed,) = run_gang(alone, home / "alone-with-adapters", attempt=2, resume_from=origin)
    assert resumed.exit_code == 0, resumed.stderr
    assert resumed.losses == pytest.approx(first.losses[2:], abs=5e-3)

    exported = home / "adapters" / "checkpoints"
    config = json.loads((exported / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["target_modules"]) == (4, ["q_proj", "v_proj"])
    model = trained_model(parse_spec(pair.spec_document))
    assert stored_elements(exported / "adapter" / "adapter_model.safetensors") == (
        model.num_trained_parameters
    )
    assert stored_elements(exported / "model" / "model.safetensors") == model.num_parameters


def stored_elements(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 - not a dict
