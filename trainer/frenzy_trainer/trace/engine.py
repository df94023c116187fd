"""Run DeepSpeed's real engine on a machine without memory, as one rank of any number."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any, Final

import torch

from frenzy_shared.messages.trace import EngineQuestion, EngineTrace, TracedMoment, TracedTerm
from frenzy_trainer.engine import start_engine, tensor_degree
from frenzy_trainer.trace.counting import Highest, Ledger
from frenzy_trainer.trace.device import imagine_device
from frenzy_trainer.trace.fakes import fake_machine, join_cluster, willing_engine
from frenzy_trainer.trace.models import ModelSource, largest_layer, loss_of

INITIALISATION: Final = "initialisation"
_WEIGHTS: Final = "weights"
_MOMENTS: Final = "Adam moments"
_ENGINE: Final = "master weights, gradient partitions, buffers"
_FORWARD: Final = "forward"
_BACKWARD: Final = "backward"
_STEP: Final = "the optimizer step"
_TERMS: Final = {  # what a phase made, in words
    INITIALISATION: _ENGINE,
    _FORWARD: "saved activations",
    _BACKWARD: "gradients and working memory",
    _STEP: "optimizer temporaries",
}


def trace_engine(source: ModelSource, question: EngineQuestion) -> EngineTrace:
    """Build the model and its engine, train for the steps asked for, and return the peaks.

    The loop holds what the trainer's own holds (train.py): the batch and the loss die before the
    optimizer runs.

    Raises:
        RankFailure: DeepSpeed refuses the configuration, or the model cannot be built.
    """
    device = _device(question.config)
    with fake_machine(device) as ledger:
        with ledger.phase(INITIALISATION), _on(device):
            model = source.build()
        sizes = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
        parameters = sum(parameter.numel() for parameter in model.parameters())
        tensor = tensor_degree(question.config)
        rank = question.rank
        if rank is None:
            rank = heaviest_rank(sizes, question.ranks // tensor) * tensor
        join_cluster(question.ranks, rank, tensor)
        with willing_engine():
            with ledger.phase(INITIALISATION):
                config = _filled(question.config, model)
                engine = start_engine(model, config)
            ledger.belong(_WEIGHTS, engine.module.parameters())
            for _ in range(question.steps):
                for _ in range(engine.gradient_accumulation_steps()):
                    _micro_step(ledger, engine, source, _on(device))
                ledger.belong(_MOMENTS, _optimizer_state(engine.optimizer))
    return EngineTrace(
        parameters=parameters,
        rank=rank,
        moments=tuple(_moment(name, found) for name, found in ledger.highest.items() if name),
        config=config,
        host_bytes=ledger.host.peak_bytes,
    )


def heaviest_rank(sizes: Sequence[int], ranks: int) -> int:
    """Return the rank whose equal slice of the flat parameters touches the most elements.

    ZeRO-1 and 2 keep the gradient of a parameter whole on every rank that owns a part of it.
    """
    ends = list(accumulate(sizes))
    total = ends[-1] if ends else 0

    def touched(rank: int) -> int:
        first = bisect_right(ends, rank * total // ranks)
        last = bisect_left(ends, (rank + 1) * total // ranks)
        return sum(sizes[first : last + 1])

    return max(range(ranks), key=touched)


def _device(config: Mapping[str, Any]) -> torch.device | None:
    """Return a device beside the host where the engine offloads; else all are the host's."""
    if "offload_optimizer" not in config.get("zero_optimization", {}):
        return None
    os.environ["DS_ACCELERATOR"] = "cpu"  # asked when it is imported
    return imagine_device()


def _on(device: torch.device | None) -> AbstractContextManager[Any]:
    """Let tensors that nobody places be made on ``device``."""
    return nullcontext() if device is None else device


def _micro_step(
    ledger: Ledger,
    engine: Any,  # noqa: ANN401 - untyped library
    source: ModelSource,
    place: AbstractContextManager[Any],
) -> None:
    with ledger.phase(_FORWARD):
        with place:
            tokens = source.tokens()
        loss = loss_of(engine(input_ids=tokens, labels=tokens))
    with ledger.phase(_BACKWARD):
        engine.backward(loss)
        del loss, tokens
    with ledger.phase(_STEP):
        engine.step()


def _filled(config: Mapping[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """Replace "auto" by what the model's own sizes say."""
    zero = dict(config.get("zero_optimization", {}))
    layer = largest_layer(model)
    vectors = [parameter.numel() for parameter in model.parameters() if parameter.dim() <= 1]
    chosen = {
        "reduce_bucket_size": layer + layer % 2,  # DeepSpeed asks for an even number
        "allgather_bucket_size": layer + layer % 2,
        "stage3_param_persistence_threshold": max(vectors, default=0),
        "stage3_max_live_parameters": 2 * (layer + layer % 2),
    }
    zero |= {name: chosen[name] for name in zero.keys() & chosen if zero[name] == "auto"}
    return {**config, "zero_optimization": zero}


def _optimizer_state(optimizer: Any) -> list[torch.Tensor]:  # noqa: ANN401 - one of DeepSpeed's or torch's
    values = (value for state in optimizer.state.values() for value in state.values())
    return [value for value in values if isinstance(value, torch.Tensor)]


def _moment(name: str, found: Highest) -> TracedMoment:
    terms = tuple(
        TracedTerm(name=_TERMS.get(owner, owner), size_bytes=size)
        for owner, size in found.by_owner.items()
    )
    return TracedMoment(name=name, size_bytes=found.size_bytes, terms=terms)
