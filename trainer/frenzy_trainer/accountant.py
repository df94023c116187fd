"""Count every live tensor byte of this process as a CUDA allocator would, and enforce a limit.

An emulated device is a CPU process whose tensors live in a budget. The accountant is a dispatch
mode: it sees the output of every operator, counts each storage once (views share one), rounds
it to the allocator's 512-byte block and gives it back when the storage dies. On a CPU backward
runs in the calling thread, so its operators are seen as well. Tensors made in other threads or
in data-loading processes are host memory and are not counted.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

BLOCK_BYTES: Final = 512  # kMinBlockSize of torch's CUDA caching allocator
_MIB: Final = 1024**2


class Accountant(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Track ``allocated_bytes`` and ``peak_bytes`` of the tensors made while it is active.

    With a capacity, the operator that would go over it raises ``torch.OutOfMemoryError``.
    """

    def __init__(self, capacity_bytes: int | None = None, *, device: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self._capacity_bytes = capacity_bytes
        self._device = device
        self._blocks: dict[int, Block] = {}
        self._counting = True
        self._elsewhere = False
        self._resize: Callable[..., Any] = torch.UntypedStorage.resize_

    def __enter__(self) -> Self:
        self._resize = torch.UntypedStorage.resize_

        # Sharded training frees and refills storages in place, which no operator shows.
        def resize_(storage: torch.UntypedStorage, size: int) -> Any:  # noqa: ANN401 - torch's
            result = self._resize(storage, size)
            if id(storage) in self._blocks:
                self._count(storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave what is made inside uncounted: copies that a real device's host would hold."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Leave what is made inside uncounted as long as it lives: a real device has none of it."""
        before, self._elsewhere = self._elsewhere, True
        try:
            yield
        finally:
            self._elsewhere = before

    def own(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count what was made ``elsewhere`` after all."""
        for tensor in tensors:
            block = self._blocks.get(id(tensor.untyped_storage()))
            if block is not None:
                block.elsewhere = False
            self._see(tensor)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        """Run the operator, then count what it made."""
        if any(kind.__name__ == "DTensor" for kind in types):
            # Sharded first: its local parts come through here again, at their own size.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        if self._counting:
            if isinstance(result, torch.Tensor):
                self._see(result)
            elif result is not None:
                for leaf in tree_iter(result):
                    if isinstance(leaf, torch.Tensor):
                        self._see(leaf)
        return result

    def _see(self, tensor: torch.Tensor) -> None:
        # A wrapper has no memory of its own; neither has a meta or a sparse tensor.
        if (
            is_traceable_wrapper_subclass(tensor)
            or tensor.layout is not torch.strided
            or tensor.is_meta
        ):
            return
        self._count(tensor.untyped_storage())

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        block = self._blocks.get(key)
        size = -(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES
        if block is None and self._elsewhere:
            block = self._block(storage)
            block.elsewhere = True
        if block is not None and (block.elsewhere or size == block.size_bytes):
            return
        added = size - (block.size_bytes if block else 0)
        if self._capacity_bytes is not None and self.allocated_bytes + added > self._capacity_bytes:
            raise torch.OutOfMemoryError(self._out_of_memory(added, self._capacity_bytes))
        if block is None:
            block = self._block(storage)
        block.size_bytes = size
        self.allocated_bytes += added
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)

    def _block(self, storage: torch.UntypedStorage) -> "Block":
        block = Block(storage, self._release)
        block.key, block.size_bytes, block.elsewhere = id(storage), 0, False
        self._blocks[block.key] = block
        return block

    def _release(self, block: "Block") -> None:
        if self._blocks.pop(block.key, None) is not None:
            self.allocated_bytes -= block.size_bytes

    def _out_of_memory(self, requested: int, capacity: int) -> str:
        used = self.allocated_bytes
        return (
            f"Emulated device out of memory. Tried to allocate {requested / _MIB:.2f} MiB. "
            f"GPU {self._device} has a total capacity of {capacity / _MIB:.2f} MiB of which "
            f"{(capacity - used) / _MIB:.2f} MiB is free. Of the allocated memory "
            f"{used / _MIB:.2f} MiB is allocated by PyTorch."
        )


class Block(weakref.ref[torch.UntypedStorage]):
    """A live storage's entry; it calls back when the storage dies.

    ``elsewhere``: the emulated device would not have it.
    """

    __slots__ = ("elsewhere", "key", "size_bytes")
    key: int
    size_bytes: int
    elsewhere: bool


def active_accountant() -> Accountant | None:
    """Return the accountant that counts in this thread, if any."""
    # torch keeps its own stack of modes: asking it avoids a global of ours.
    from torch.utils._python_dispatch import (  # noqa: PLC0415 - private, used only here
        _get_current_dispatch_mode_stack,
    )

    modes = _get_current_dispatch_mode_stack()
    return next((mode for mode in reversed(modes) if isinstance(mode, Accountant)), None)
