"""A GPU beside the host that does not exist, for a trace that must tell the two apart.

What ZeRO-Offload keeps in the node's RAM and what is on the GPU would both be CPU tensors here.
Fake tensors need no hardware, so the GPU's get a device type of their own: torch's private one,
as a backend in Python that has not a single operator. DeepSpeed learns of it through its
accelerator, and then copies between host and device as it does on a GPU.
"""

from functools import partial
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils import backend_registration

IMAGINED: Final = "imagined"
_DEVICE: Final = f"{IMAGINED}:0"
_PLENTY: Final = 2**60  # bytes: DeepSpeed makes its flat copy on the device where there is room
_TENSORS: Final = {  # DeepSpeed's constructors, by dtype
    "ByteTensor": torch.uint8,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
}
_registered: Final[list[object]] = []  # torch does not hold on to what a backend is made of


def imagine_device() -> torch.device:
    """Make this process' torch and DeepSpeed take an imagined GPU for theirs, for good."""
    from deepspeed.accelerator import set_accelerator  # noqa: PLC0415 - reads DS_ACCELERATOR

    if not _registered:
        _register()
    set_accelerator(_accelerator())
    return torch.device(_DEVICE)


class _Backend(backend_registration._DummyBackendModule):  # noqa: SLF001 - made to be derived from
    """What torch asks of a device's module while activations are recomputed."""

    def get_rng_state(self, _device: object = None) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, _state: torch.Tensor, _device: object = None) -> None: ...

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def _register() -> None:
    parts = (
        _Backend(),
        backend_registration._DummyPrivateUse1Hook(),  # noqa: SLF001 - as above
        backend_registration._DummyDeviceGuard(),  # noqa: SLF001 - as above
    )
    _registered.extend(parts)
    backend, hook, guard = parts
    backend_registration._setup_privateuseone_for_python_backend(  # noqa: SLF001 - the only way without C++
        IMAGINED, backend_module=backend, hook=hook, device_guard=guard
    )
    # Else torch.tensor is made on the host and moved by an operator that nobody has.
    FakeTensorMode.avoid_device_init = property(lambda _: True)  # type: ignore[assignment,method-assign]
    functional.scaled_dot_product_attention = _fused_attention  # else its scores are written out


def _fused_attention(  # noqa: PLR0917 - torch's signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: ARG001, FBT001, FBT002 - torch's signature; it finds out
) -> torch.Tensor:
    """Run the operator that saves what a GPU's saves: inputs, output and row statistics."""
    out: torch.Tensor
    out, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(  # noqa: SLF001 - its name in torch
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )
    return out


def _accelerator() -> Any:  # noqa: ANN401 - untyped library
    from deepspeed.accelerator.cpu_accelerator import (  # noqa: PLC0415 - reads DS_ACCELERATOR
        CPU_Accelerator,
    )

    def named(_self: object, index: int | None = None) -> str:
        return IMAGINED if index is None else f"{IMAGINED}:{index}"

    made = {
        "device_name": named,
        "current_device_name": lambda _: _DEVICE,
        "device": lambda _self, _index=None: torch.device(_DEVICE),
        "on_accelerator": lambda _, tensor: tensor.device.type == IMAGINED,
        "available_memory": lambda _self, _index=None: _PLENTY,
    }
    constructors = {
        name: staticmethod(partial(torch.tensor, dtype=dtype, device=_DEVICE))
        for name, dtype in _TENSORS.items()
    }
    return type("ImaginedAccelerator", (CPU_Accelerator,), {**made, **constructors})()
