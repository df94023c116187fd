"""Write a safetensors file tensor by tensor, so that a whole model is never in memory twice.

The format: 8 bytes of header length, a JSON header with every tensor's type, shape and place,
then the raw little-endian data (https://github.com/huggingface/safetensors, README "Format").
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import torch

_TYPES: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}
_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """What the header says about one tensor before its data is there."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Return the length of the tensor's data."""
        return math.prod(self.shape) * self.dtype.itemsize


class SafetensorsWriter:
    """Write ``entries`` to ``path``; call ``write`` once per entry, in order."""

    def __init__(self, path: Path, entries: Sequence[TensorEntry]) -> None:
        self._file = path.open("wb")
        self._file.write(_header(entries))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, tensor: torch.Tensor) -> None:
        """Append the data of the next entry; the tensor may be on any device."""
        flat = tensor.detach().cpu().contiguous().view(-1)
        self._file.write(flat.view(torch.uint8).numpy().data)


def _header(entries: Sequence[TensorEntry]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        end = offset + entry.size_bytes
        header[entry.name] = {
            "dtype": _TYPES[entry.dtype],
            "shape": entry.shape,
            "data_offsets": (offset, end),
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
