"""A reverse-mode autograd that moves no numbers: it only counts the bytes that would be live.

A block of a model is written down once, as the operators that transformers' code runs (see
``blocks.py``). The tape then knows what forward holds, what is saved for backward, and what
every backward node makes and frees, in torch's own order: the node created last runs first, a
node's incoming gradient and saved tensors are freed after it ran, a second gradient for the same
tensor is added into a new one (torch/csrc/autograd/input_buffer.cpp).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

BLOCK_BYTES: Final = 512  # kMinBlockSize, c10/cuda/CUDACachingAllocator.cpp


def rounded(size_bytes: int) -> int:
    """Return the bytes that the allocator takes for a tensor of ``size_bytes``."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


class Storage:
    """Memory of one or more tensors; freed when nobody holds it. Not counted when not real."""

    __slots__ = ("holders", "real", "size_bytes")

    def __init__(self, size_bytes: int, *, real: bool = True) -> None:
        self.size_bytes = size_bytes
        self.holders = 1
        self.real = real


class Value:
    """A tensor of the forward pass: its storage, and its gradient once backward reaches it."""

    __slots__ = ("grad", "in_scope", "size_bytes", "storage")

    def __init__(self, storage: Storage, size_bytes: int | None = None) -> None:
        self.storage = storage
        self.size_bytes = storage.size_bytes if size_bytes is None else size_bytes
        self.grad: Storage | None = None
        self.in_scope = True


Backward = Callable[[Storage], None]


@dataclass(slots=True)
class _Node:
    output: Value
    saved: tuple[Storage, ...]
    run: Backward


@dataclass(slots=True)
class Tape:
    """Count live bytes over a forward and a backward pass.

    ``keep_saved`` False is the first pass of a checkpointed block: nothing is saved.
    ``last_save`` is the number of the save at which a recomputation ends, as
    torch.utils.checkpoint's early stop does; what the block's code makes after it does not exist.
    ``gathers``: a weight exists only while its layer runs (ZeRO-3 on several ranks).
    ``ending``: the weights of the layer that made the last save, empty when it has none.
    ``frozen``: weights need no gradients, except for those that say so.
    ``peaks[k]`` is the highest count while ``k`` parameter gradients have been handed over, and
    ``handing[k]`` the count at the moment the next one is; from then on it is no longer counted.
    """

    keep_saved: bool = True
    last_save: int | None = None
    live: int = 0
    num_saves: int = 0
    peaks: list[int] = field(default_factory=lambda: [0])
    handing: list[int] = field(default_factory=list[int])
    parameters: list[int] = field(default_factory=list[int])  # bytes, in the order handed over
    gathers: bool = False
    frozen: bool = False
    ending: tuple[int, ...] = ()
    _stopped: bool = False
    _waiting: Storage | None = None
    _early: list[Storage] | None = None
    _nodes: list[_Node] = field(default_factory=list[_Node])
    _scope: list[Value] = field(default_factory=list[Value])
    _emitted: list[tuple[Value, Storage]] = field(default_factory=list[tuple[Value, Storage]])
    _handed: list[Storage] = field(default_factory=list[Storage])

    # -- forward ------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> Storage:
        """Make a storage of ``size_bytes``, rounded as the allocator does."""
        storage = Storage(-(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES, real=not self._stopped)
        if storage.real:
            self.live += storage.size_bytes
            self.peaks[-1] = max(self.peaks[-1], self.live)
        return storage

    def free(self, storage: Storage) -> None:
        """Let go of one hold on a storage."""
        storage.holders -= 1
        if storage.holders == 0 and storage.real:
            self.live -= storage.size_bytes

    def value(self, size_bytes: int) -> Value:
        """Make the tensor that an operator returns; it is in scope until ``drop``."""
        value = Value(self.allocate(size_bytes))
        self._scope.append(value)
        return value

    def view(self, value: Value, size_bytes: int | None = None) -> Value:
        """Make a tensor of ``size_bytes`` that shares the storage of ``value``."""
        value.storage.holders += 1
        other = Value(value.storage, rounded(size_bytes or value.size_bytes))
        self._scope.append(other)
        return other

    def drop(self, *values: Value) -> None:
        """Forget Python variables."""
        for value in values:
            if value.in_scope:
                value.in_scope = False
                self.free(value.storage)

    def save(self, *storages: Storage) -> tuple[Storage, ...]:
        """Hold storages for backward; operators save before they make their output."""
        self.num_saves += len(storages)
        self.ending = ()
        if not self.keep_saved:
            return ()
        for storage in storages:
            storage.holders += 1
        if self.num_saves == self.last_save:
            self._stop()
        return storages

    def record(self, output: Value, saved: tuple[Storage, ...], run: Backward) -> None:
        """Remember how to run an operator backward. ``run`` gets the output's gradient."""
        if self.keep_saved:
            self._nodes.append(_Node(output, saved, run))

    def gather(self, *sizes: int) -> list[Storage]:
        """Make the weights of a layer whole, where they are sharded.

        Several parameters arrive in one flat buffer and are copied out of it
        (AllGatherCoalescedHandle.wait, partition_parameters.py).
        """
        present = [size for size in sizes if size]
        if not self.gathers:
            return []
        if len(present) == 1:
            return [self.allocate(present[0])]
        flat = self.allocate(sum(present))
        weights = [self.allocate(size) for size in present]
        self.free(flat)
        return weights

    @property
    def holds_weights(self) -> bool:
        """Tell whether what a layer saves holds the weights that were gathered for it.

        A recomputation saves detached tensors, which outlive what the engine does with a parameter
        (_recomputation_hook, torch/utils/checkpoint.py); elsewhere the parameter itself is saved.
        """
        return self.gathers and (not self.keep_saved or self.last_save is not None)

    def gather_early(self, sizes: tuple[int, ...]) -> None:
        """Make the weights whole of the layer at which a recomputation will end.

        Backward reaches that layer first and fetches its weights before its saved tensors, which
        start the recomputation (PreBackwardFunction, parameter_offload.py).
        """
        self._early = self.gather(*sizes)

    def take_early(self, num_saves: int) -> list[Storage] | None:
        """Return what was gathered early if the next ``num_saves`` end the recomputation."""
        return self._early if self.num_saves + num_saves == self.last_save else None

    def release(self, weights: list[Storage]) -> None:
        """Shard the weights of a layer again."""
        for storage in weights:
            self.free(storage)

    # -- backward -----------------------------------------------------------------------------

    def give(self, value: Value, size_bytes: int | None = None) -> None:
        """Make the gradient of ``value`` inside a node."""
        size = value.size_bytes if size_bytes is None else size_bytes
        self._emitted.append((value, self.allocate(size)))

    def share(self, value: Value, gradient: Storage) -> None:
        """Pass a node's incoming gradient on as the gradient of ``value``, without a copy."""
        gradient.holders += 1
        self._emitted.append((value, gradient))

    def give_parameter(
        self, size_bytes: int, *, tied: bool = False, made: Storage | None = None
    ) -> None:
        """Make a parameter's gradient inside a node; it is handed over after the node ran.

        The first gradient of a ``tied`` parameter waits until the second is added to it. A
        gradient that was ``made`` before is held once more.
        """
        if made is None:
            gradient = self.allocate(size_bytes)
        else:
            gradient = made
            gradient.holders += 1
        if tied:
            self._waiting = gradient
        elif self._waiting is not None and self._waiting.size_bytes == gradient.size_bytes:
            total = self.allocate(size_bytes)
            self.free(gradient)
            self.free(self._waiting)
            self._waiting = None
            self._hand(total, size_bytes)
        else:
            self._hand(gradient, size_bytes)

    def backward(self, output: Value, gradient: Storage) -> None:
        """Run every node, last first, from the gradient of ``output``."""
        self._stopped = False
        output.grad = gradient
        while self._nodes:
            node = self._nodes.pop()
            incoming = node.output.grad
            if incoming is None:
                continue
            node.output.grad = None
            node.run(incoming)
            self.free(incoming)
            for storage in node.saved:
                self.free(storage)
            self._deliver()

    def hand_over(self, gradient: Storage) -> None:
        """Let the engine have a parameter's gradient: a new part of backward begins."""
        self.handing.append(self.live)
        self.free(gradient)
        self.peaks.append(self.live)

    def restart_peaks(self) -> None:
        """Begin a new phase: forget the peaks so far."""
        self.peaks = [self.live]
        self.handing = []

    def _stop(self) -> None:
        """End a recomputation: its frames are gone, and with them their variables."""
        self.drop(*self._scope)
        self._stopped = True

    def _deliver(self) -> None:
        emitted, self._emitted = self._emitted, []
        for value, gradient in emitted:
            if value.grad is None:
                value.grad = gradient
                continue
            total = self.allocate(gradient.size_bytes)
            self.free(value.grad)
            self.free(gradient)
            value.grad = total
        handed, self._handed = self._handed, []
        for gradient in handed:
            self.hand_over(gradient)

    def _hand(self, gradient: Storage, size_bytes: int) -> None:
        self._handed.append(gradient)
        self.parameters.append(size_bytes)
