"""Which reason each exception becomes."""

import socket

import pytest
import torch

from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured
from frenzy_trainer.errors import CheckpointError, DataError, TrainingDiverged
from frenzy_trainer.failures import classify, describe, is_communication_error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), StopReason.CUDA_OUT_OF_MEMORY),
        (MemoryError(), StopReason.HOST_OUT_OF_MEMORY),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory"
            ),
            StopReason.HOST_OUT_OF_MEMORY,
        ),
        (
            RuntimeError(
                "[../third_party/gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:1"
            ),
            StopReason.COMMUNICATION_ERROR,
        ),
        (torch.distributed.DistNetworkError("no route"), StopReason.COMMUNICATION_ERROR),
        (ConnectionResetError("Connection reset by peer"), StopReason.COMMUNICATION_ERROR),
        (DataError("empty"), StopReason.DATA_ERROR),
        (CheckpointError("the process group's disk is full"), StopReason.CHECKPOINT_ERROR),
        (TrainingDiverged("nan"), StopReason.USER_CODE_ERROR),
        (Misconfigured("no plan"), StopReason.INTERNAL_ERROR),
        (ValueError("shape"), StopReason.USER_CODE_ERROR),
        (KeyboardInterrupt(), StopReason.USER_CODE_ERROR),
    ],
)
def test_reasons(error: BaseException, reason: StopReason) -> None:
    assert classify(error) is reason


def test_running_out_of_memory_inside_a_collective_is_still_that() -> None:
    error = torch.OutOfMemoryError("out of memory in ProcessGroupGloo")
    assert not is_communication_error(error)
    assert classify(error) is StopReason.CUDA_OUT_OF_MEMORY


def test_messages_name_rank_cause_and_remedy() -> None:
    error = DataError("data x: is empty", suggestions=["give text"])
    assert describe(error, 2) == "rank 2: data x: is empty; give text"
    assert describe(ValueError("two\n lines"), 0) == "rank 0: ValueError: two lines"
    assert describe(ValueError(), 0) == "rank 0: ValueError: ValueError"


def test_a_rendezvous_port_that_somebody_else_took_is_a_communication_error() -> None:
    """It was free until the ranks started: another attempt gets another one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(torch.distributed.DistNetworkError) as caught:
            torch.distributed.TCPStore(
                "127.0.0.1", taken.getsockname()[1], world_size=1, is_master=True
            )
    assert classify(caught.value) is StopReason.COMMUNICATION_ERROR
