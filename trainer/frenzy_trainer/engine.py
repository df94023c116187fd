"""Start torch.distributed and DeepSpeed for one rank."""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from frenzy_trainer.errors import RankFailure


def start_distributed(*, emulated: bool) -> None:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe."""
    if emulated or not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # DeepSpeed's calls of torch, once per collective; neither is the user's.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    import deepspeed  # noqa: PLC0415 - reads DS_ACCELERATOR when imported
    from deepspeed.accelerator import get_accelerator  # noqa: PLC0415 - same

    if get_accelerator().device_name() == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        # Otherwise DeepSpeed compiles a shared-memory collective for a minute; gloo does the work.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        dist_backend=get_accelerator().communication_backend_name(), auto_mpi_discovery=False
    )


def start_engine(model: PreTrainedModel, config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - untyped library
    """Return DeepSpeed's engine for ``model``, with the plan's configuration as it is.

    Weights that need no gradient stay outside the optimizer.

    Raises:
        RankFailure: DeepSpeed refuses the configuration.
    """
    import deepspeed  # noqa: PLC0415 - see start_distributed

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    tensor = tensor_degree(config)
    try:
        engine, *_ = deepspeed.initialize(
            model=model,
            model_parameters=trained,
            config=dict(config),
            mpu=split_ranks(tensor) if tensor > 1 else None,
        )
    except (ValueError, AssertionError) as error:
        raise RankFailure(f"DeepSpeed refuses the plan's configuration: {error}") from error
    _forget_dry_run(engine.optimizer)
    return engine


def tensor_degree(config: Mapping[str, Any]) -> int:
    """Return over how many ranks a configuration splits every layer."""
    return int(config.get("tensor_parallel", {}).get("autotp_size", 1))


def split_ranks(tensor: int) -> Any:  # noqa: ANN401 - one of DeepSpeed's modules
    """Make groups of ``tensor`` ranks that share a batch, and return what tells them apart.

    Without it DeepSpeed takes every rank for one with a batch of its own.
    """
    from deepspeed.utils import groups  # noqa: PLC0415 - see start_distributed

    groups._init_tp_mesh_device(tensor_model_parallel_size=tensor)  # noqa: SLF001 - as its own engine does
    return groups


def _forget_dry_run(optimizer: Any) -> None:  # noqa: ANN401 - one of DeepSpeed's or torch's
    """Set Adam's step counters back to 0.

    DeepSpeed's bf16 optimizer of stage 0 allocates its moments by a step with zero gradients
    (fp16/unfused_optimizer.py, 0.19). Left so, the first real update would be 26 % too small
    and the losses would depend on the stage.
    """
    for state in optimizer.state.values():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"].zero_()
