"""A machine without memory and a cluster without machines: what a trace runs on.

Fake tensors have shapes and storages of the right size, and no contents. Code that asks for a
value (an overflow check, a gradient norm, a mask that might be all ones) gets the answer of a
healthy run. Tensors are on the CPU: in torch's CPU build fake CUDA tensors abort the process.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from frenzy_trainer.engine import split_ranks
from frenzy_trainer.trace.counting import Ledger

_ITEM: Final = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001 - its name in torch
_EQUAL: Final = torch.ops.aten.equal.default
_ALL: Final = torch.ops.aten.all.default


def join_cluster(ranks: int, rank: int, tensor: int = 1) -> None:
    """Make this process ``rank`` of a process group whose other members do not exist.

    Groups of ``tensor`` ranks share every layer.
    """
    os.environ |= {
        "DS_ACCELERATOR": "cpu",
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",  # never opened
    }
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    with _disable_current_modes():  # what the libraries keep for themselves is real
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        import deepspeed  # noqa: PLC0415 - reads DS_ACCELERATOR when imported

        # Otherwise DeepSpeed compiles a shared-memory collective for a minute.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
        if tensor > 1:
            split_ranks(tensor)


@contextmanager
def fake_machine(device: torch.device | None = None) -> Iterator[Ledger]:
    """Let every tensor made inside be fake, and count it.

    With a ``device`` that is where tensors are made unless told otherwise, and what is counted.
    """
    with ExitStack() as stack:
        _replace(stack, torch.nn.Module, "_apply", _convert)
        _as_if_real(stack)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        ledger = stack.enter_context(Ledger(None if device is None else device.type))
        stack.enter_context(_Answers())  # type: ignore[no-untyped-call]
        yield ledger


@contextmanager
def willing_engine() -> Iterator[None]:
    """Let DeepSpeed take what only this machine cannot do: fp16, and hearing from other ranks.

    ZeRO-3 checks that all ranks do the same, by lists that here no other rank sends.
    """
    import deepspeed  # noqa: PLC0415 - after DS_ACCELERATOR
    from deepspeed.accelerator import get_accelerator  # noqa: PLC0415 - same
    from deepspeed.runtime.zero import utils  # noqa: PLC0415 - same

    with ExitStack() as stack:
        _replace(stack, type(get_accelerator()), "is_fp16_supported", lambda _: True)
        _replace(stack, utils, "assert_lst_len_same_as_other_ranks", lambda _: None)
        _replace(stack, utils, "get_lst_from_rank0", list)
        # Ranks that share a batch compare it by what one of them sends.
        _replace(stack, deepspeed.comm, "broadcast_object_list", lambda **_: None)
        yield


class _Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answer what would need a tensor's contents.

    Numbers: 1.0, which keeps Adam's bias correction finite, and 0 for counts of overflows.
    Truths: what reduces with ``all`` is a check that holds, everything else is an alarm.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        del types
        if func is _ITEM:
            return _value(args[0])
        if func is _EQUAL:
            return True
        result = func(*args, **(kwargs or {}))
        if func is _ALL:
            result.holds = True
        return result


def _value(tensor: torch.Tensor) -> bool | int | float:
    if tensor.dtype is torch.bool:
        return bool(getattr(tensor, "holds", False))
    return 1.0 if tensor.dtype.is_floating_point else 0


def _as_if_real(stack: ExitStack) -> None:
    """Keep transformers from taking a trace for an export, where it builds masks it never needs."""
    from transformers.utils import import_utils  # noqa: PLC0415 - one library's code

    _replace(stack, import_utils, "is_fake_tensor", lambda _: False)


def _convert(
    module: torch.nn.Module,
    function: Callable[[torch.Tensor], torch.Tensor],
    recurse: bool = True,  # noqa: FBT001, FBT002 - torch's signature
) -> torch.nn.Module:
    """Do what ``Module._apply`` does: torch's own cannot put a fake tensor in another's place."""
    for part in module.modules() if recurse else (module,):
        for table in (part._parameters, part._buffers):  # noqa: SLF001 - as torch's own does
            for name, tensor in table.items():
                if tensor is None:
                    continue
                with torch.no_grad():
                    changed = function(tensor)
                if changed is not tensor and isinstance(tensor, torch.nn.Parameter):
                    changed = torch.nn.Parameter(changed, tensor.requires_grad)
                table[name] = changed  # type: ignore[assignment]
    return module


def _replace(stack: ExitStack, owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    before = getattr(owner, name)
    stack.callback(setattr, owner, name, before)
    setattr(owner, name, value)
