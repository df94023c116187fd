"""Name the reason why a rank failed, from the exception that ended it."""

import re
import sys
from typing import Final

from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import FrenzyError
from frenzy_trainer.errors import RankFailure

# What gloo, NCCL and the rendezvous store say when another rank is gone. gloo raises a bare
# RuntimeError; these texts are from torch 2.4 to 2.13.
_COMMUNICATION: Final = re.compile(
    r"connection (?:closed|reset|refused)|gloo|nccl|broken pipe|socket (?:timeout|closed)"
    r"|timed out waiting|wait timeout|store->|tcpstore|process ?group",
    re.IGNORECASE,
)
_HOST_MEMORY: Final = re.compile(r"can't allocate memory|std::bad_alloc|Cannot allocate memory")


def classify(error: BaseException) -> StopReason:
    """Return the stop reason for an exception that ends a rank."""
    if isinstance(error, RankFailure):
        return error.reason
    if isinstance(error, FrenzyError):
        return StopReason.INTERNAL_ERROR
    if is_out_of_memory(error):
        return StopReason.CUDA_OUT_OF_MEMORY
    if isinstance(error, MemoryError) or _HOST_MEMORY.search(str(error)):
        return StopReason.HOST_OUT_OF_MEMORY
    if is_communication_error(error):
        return StopReason.COMMUNICATION_ERROR
    return StopReason.USER_CODE_ERROR


def describe(error: BaseException, rank: int) -> str:
    """Return one line for people: which rank, what happened, what to do."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FrenzyError):
        hint = f"; {'; '.join(error.suggestions)}" if error.suggestions else ""
        return f"rank {rank}: {text}{hint}"
    return f"rank {rank}: {type(error).__name__}: {text}"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether the device's memory ran out."""
    # Without torch in the process nothing can have raised it: no import needed to know.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def is_communication_error(error: BaseException) -> bool:
    """Tell whether a collective failed because another rank is gone or unreachable."""
    if is_out_of_memory(error):
        return False
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.distributed.DistError):
        return True
    return (
        isinstance(error, RuntimeError | ConnectionError)
        and not isinstance(error, FrenzyError)
        and _COMMUNICATION.search(str(error)) is not None
    )
