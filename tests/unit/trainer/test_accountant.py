"""The accountant counts what a CUDA allocator would, and refuses what does not fit."""

import pytest
import torch
from torch import nn

from frenzy_trainer.accountant import Accountant, active_accountant
from frenzy_trainer.memory import host_memory, peak_memory

KIB = 1024


def kib(count: int) -> torch.Tensor:
    return torch.empty(count * KIB, dtype=torch.uint8)


def test_counts_a_storage_once_and_gives_it_back() -> None:
    with Accountant() as accountant:
        tensor = kib(8)
        views = [tensor[KIB:], tensor.view(8, KIB), tensor.detach(), tensor.t()]
        assert accountant.allocated_bytes == 8 * KIB
        del tensor
        assert accountant.allocated_bytes == 8 * KIB, "a view keeps the storage alive"
        views.clear()
        assert accountant.allocated_bytes == 0
        assert accountant.peak_bytes == 8 * KIB


def test_rounds_to_the_allocators_block() -> None:
    with Accountant() as accountant:
        scalar, empty, odd = torch.zeros(1), torch.empty(0), torch.empty(513, dtype=torch.uint8)
        assert accountant.allocated_bytes == 512 + 0 + 1024
        del scalar, empty, odd


def test_in_place_operators_add_nothing() -> None:
    with Accountant() as accountant:
        tensor = torch.zeros(1024)
        tensor.add_(1).mul_(2).clamp_(0, 1)
        tensor[3:7].fill_(5)
        assert accountant.peak_bytes == 4 * KIB


def test_follows_storages_that_are_resized_in_place() -> None:
    original = torch.UntypedStorage.resize_
    with Accountant() as accountant:
        tensor = kib(8)
        tensor.untyped_storage().resize_(0)
        assert accountant.allocated_bytes == 0
        tensor.untyped_storage().resize_(16 * KIB)
        assert accountant.allocated_bytes == 16 * KIB
        del tensor
        assert accountant.allocated_bytes == 0
    assert torch.UntypedStorage.resize_ is original


def test_sees_what_backward_and_the_optimizer_allocate() -> None:
    with Accountant() as accountant:
        layer = nn.Linear(64, 64, bias=False)
        weights = 64 * 64 * 4
        optimizer = torch.optim.AdamW(layer.parameters())
        layer(torch.ones(2, 64)).sum().backward()
        assert accountant.allocated_bytes == 2 * weights, "weights and their gradients"
        optimizer.step()
        assert accountant.allocated_bytes == 4 * weights + 512, "and two moments, a step counter"
        optimizer.zero_grad()
        assert accountant.allocated_bytes == 3 * weights + 512


def test_refuses_the_first_byte_over_the_capacity() -> None:
    with Accountant(64 * KIB, device=3) as accountant:
        held = [kib(32), kib(32)]
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.zeros(1)
        assert accountant.allocated_bytes == 64 * KIB
        held.pop()
        again = kib(32)
        assert accountant.peak_bytes == 64 * KIB
        del again
    assert str(caught.value) == (
        "Emulated device out of memory. Tried to allocate 0.00 MiB. GPU 3 has a total capacity "
        "of 0.06 MiB of which 0.00 MiB is free. Of the allocated memory 0.06 MiB is allocated "
        "by PyTorch."
    )


def test_out_of_memory_in_backward_reaches_the_caller_as_such() -> None:
    weight = torch.ones(256, 256, requires_grad=True)  # outside: 256 KiB that are not counted
    with Accountant(200 * KIB):
        loss = (weight @ torch.ones(256, 1)).sum()
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 0\.25 MiB"):
            loss.backward()


def test_host_memory_is_not_counted() -> None:
    with Accountant(4 * KIB) as accountant:
        with host_memory():
            copy = kib(64)
        assert accountant.peak_bytes == 0
        del copy
        assert accountant.allocated_bytes == 0


def test_the_peak_is_read_from_the_active_accountant_only() -> None:
    assert active_accountant() is None
    assert peak_memory().allocated_bytes is None
    with Accountant() as accountant:
        assert active_accountant() is accountant
        kept = kib(4)
        assert peak_memory().allocated_bytes == peak_memory().reserved_bytes == 4 * KIB
        del kept
    outside = kib(4)
    assert accountant.allocated_bytes == 0
    del outside


def test_wrappers_and_sparse_tensors_have_no_storage_of_their_own() -> None:
    with Accountant() as accountant:
        eye = torch.eye(64)
        before = accountant.allocated_bytes
        sparse = eye.to_sparse()
        parts = 64 * 2 * 8 + 64 * 4  # int64 indices, fp32 values
        assert before <= accountant.allocated_bytes <= before + parts + 1024
        del sparse, eye
