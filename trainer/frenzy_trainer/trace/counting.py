"""The accountant of a trace: it also says which part of the run made what is live at a peak."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from frenzy_trainer.accountant import Accountant, Block


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest count in one phase, and the bytes of it by owner."""

    size_bytes: int
    by_owner: dict[str, int]


class Ledger(Accountant):  # type: ignore[no-untyped-call]
    """Count as the accountant does, and keep the highest count of every phase apart.

    What is made belongs to the phase that makes it, until ``belong`` gives it another owner.
    With a ``device`` type only its tensors are counted, and the others' apart, as ``host``.
    """

    def __init__(self, device: str | None = None) -> None:
        super().__init__()
        self.highest: dict[str, Highest] = {}
        self.host = Accountant()
        self._only = device
        self._phase = ""
        self._owners: dict[int, str] = {}
        self._held: Counter[str] = Counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is made inside for ``name``; a phase may come more than once."""
        before, self._phase = self._phase, name
        self._look()
        try:
            yield
        finally:
            self._phase = before

    def belong(self, owner: str, tensors: Iterable[torch.Tensor]) -> None:
        """Give the storages of ``tensors`` to ``owner``."""
        for tensor in tensors:
            key = id(tensor.untyped_storage())
            block = self._blocks.get(key)
            if block is not None:
                self._held[self._owners[key]] -= block.size_bytes
                self._held[owner] += block.size_bytes
                self._owners[key] = owner

    def _see(self, tensor: torch.Tensor) -> None:
        if self._only in {None, tensor.device.type}:
            super()._see(tensor)
        else:
            self.host._see(tensor)  # noqa: SLF001 - another of its kind

    def _count(self, storage: torch.UntypedStorage) -> None:
        before = self.allocated_bytes
        super()._count(storage)
        owner = self._owners.setdefault(id(storage), self._phase)
        if self.allocated_bytes != before:
            self._held[owner] += self.allocated_bytes - before
            self._look()

    def _release(self, block: Block) -> None:
        if block.key in self._blocks:
            self._held[self._owners.pop(block.key)] -= block.size_bytes
        super()._release(block)

    def _look(self) -> None:
        known = self.highest.get(self._phase)
        if known is None or self.allocated_bytes > known.size_bytes:
            self.highest[self._phase] = Highest(self.allocated_bytes, dict(+self._held))
