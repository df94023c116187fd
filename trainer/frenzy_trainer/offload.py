"""ZeRO-Offload on an emulated device: what DeepSpeed makes in the node's RAM is not the device's.

On a CPU both are tensors of one kind, so who makes them has to tell. DeepSpeed (0.19) makes the
host's when its optimizer is built, when it steps, and where it lets gradients accumulate. What
goes from host to device is not copied here, which leaves out what a GPU holds for a moment: one
gradient's part, and on a single rank the weights of a layer whose weights are offloaded.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from frenzy_trainer.accountant import Accountant, active_accountant
from frenzy_trainer.engine import start_engine

# Methods of DeepSpeed's optimizers that make tensors on the host and nowhere else.
_ON_HOST: Final = ("_optimizer_step", "async_accumulate_grad_in_cpu_via_gpu")


def start_placed_engine(model: PreTrainedModel, config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - untyped library
    """Return ``start_engine``'s engine; what it offloads is not counted as an emulated device's.

    Raises:
        RankFailure: DeepSpeed refuses the configuration.
    """
    accountant = active_accountant()
    if accountant is None or "offload_optimizer" not in config.get("zero_optimization", {}):
        return start_engine(model, config)
    with accountant.elsewhere():
        engine = start_engine(model, config)
    accountant.own(_on_device(engine))
    for name in _ON_HOST:
        method = getattr(engine.optimizer, name, None)
        if method is not None:
            setattr(engine.optimizer, name, _placed(accountant, method))
    return engine


def _placed(accountant: Accountant, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def on_host(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - DeepSpeed's
        with accountant.elsewhere():
            return method(*args, **kwargs)

    return on_host


def _on_device(engine: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - untyped library
    """Yield what the engine made for the device: weights, or its part of them, and buffers."""
    optimizer = engine.optimizer
    yield from engine.module.parameters()
    for name in ("temp_grad_buffer_for_gpu_offload", "lp_param_buffer"):
        tensor = getattr(optimizer, name, None)
        if tensor is not None:
            yield tensor
    for bucket in optimizer.ipg_buckets.values():
        found = getattr(bucket, "buffer", None)
        yield from found if isinstance(found, list) else [found] if found is not None else []
