"""Files written tensor by tensor are what the safetensors library reads."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from frenzy_trainer.safetensors import SafetensorsWriter, TensorEntry


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_library_reads_it_back(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "matrix": torch.randn(3, 5).to(dtype),
        "transposed": torch.randn(4, 2).to(dtype).t(),
        "scalar": torch.tensor(1.5).to(dtype),
        "empty": torch.empty(0, 7, dtype=dtype),
    }
    path = tmp_path / "model.safetensors"
    entries = [TensorEntry(name, dtype, tuple(value.shape)) for name, value in tensors.items()]
    with SafetensorsWriter(path, entries) as writer:
        for value in tensors.values():
            writer.write(value)
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], value) for name, value in tensors.items())
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
