"""Peak memory of this rank since it started, from whichever allocator it uses."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from frenzy_trainer.accountant import active_accountant


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """Highest bytes so far; ``None`` when nothing measures this process.

    An emulated device has no caching allocator, so there reserved equals allocated.
    """

    allocated_bytes: int | None
    reserved_bytes: int | None


def peak_memory() -> PeakMemory:
    """Read the accountant of an emulated device, else the CUDA allocator."""
    accountant = active_accountant()
    if accountant is not None:
        peak = accountant.peak_bytes
        return PeakMemory(allocated_bytes=peak, reserved_bytes=peak)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return PeakMemory(
            allocated_bytes=torch.cuda.max_memory_allocated(),
            reserved_bytes=torch.cuda.max_memory_reserved(),
        )
    return PeakMemory(allocated_bytes=None, reserved_bytes=None)


def host_memory() -> AbstractContextManager[None]:
    """Mark a block whose new tensors live on the host, also where the device is emulated."""
    accountant = active_accountant()
    return accountant.suspended() if accountant is not None else nullcontext()
