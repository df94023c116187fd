"""The DeepSpeed configuration of a plan, complete: the trainer passes it on unchanged."""

from typing import Any, Final

from frenzy_marp.core.memory.analytical import persistence_threshold
from frenzy_shared.domain.model import ModelArchitecture, TrainingSetup
from frenzy_shared.domain.plan import Offload, ParallelismPlan, Precision

_MAX_BUCKET_ELEMENTS: Final = 100_000_000
_MIN_BUCKET_ELEMENTS: Final = 16_384
_NEVER: Final = 10**9
_ANY_RATE: Final = 1e-3  # memory does not depend on it


def bucket_elements(model: ModelArchitecture) -> int:
    """Return the reduction bucket: one layer's gradients, so that a layer is one message.

    DeepSpeed's default of 5e8 elements takes 0.93 GiB in bf16 whatever the model's size.
    """
    outside = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    layer = (model.num_parameters - outside) // model.num_layers
    if model.adapters is not None:
        layer = model.adapter_parameters
    chosen = max(_MIN_BUCKET_ELEMENTS, min(layer, _MAX_BUCKET_ELEMENTS))
    return chosen + chosen % 2  # DeepSpeed asks for an even number


def deepspeed_config(
    setup: TrainingSetup, plan: ParallelismPlan, *, overlaps: bool
) -> dict[str, Any]:
    """Return the configuration for ``deepspeed.initialize``.

    ``overlaps``: a GPU computes while it copies, so ZeRO-3 gathers a bucket ahead and what is
    offloaded lies in page-locked RAM; on a CPU both would only cost memory.
    """
    threshold, bucket = persistence_threshold(setup.model), plan.reduce_bucket_elements
    document = _document(plan, _optimizer(setup.learning_rate, setup.weight_decay))
    zero = _zero(plan, bucket, threshold, prefetch=bucket if overlaps else 0)
    document["zero_optimization"] = zero | _offloaded(plan, pinned=overlaps)
    if plan.offload is not Offload.NONE:
        document["zero_force_ds_cpu_optimizer"] = False  # DeepSpeed's would be compiled first
    if setup.gradient_clipping is not None:
        document["gradient_clipping"] = setup.gradient_clipping
    return document


def unsized_config(plan: ParallelismPlan) -> dict[str, Any]:
    """Return the configuration for a model whose sizes only its trace tells: "auto" for each."""
    document = _document(plan, _optimizer(_ANY_RATE, 0.0))
    return {**document, "zero_optimization": _zero(plan, "auto", "auto", prefetch=0)}


def _document(plan: ParallelismPlan, optimizer: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "train_batch_size": plan.global_batch_size,
        "steps_per_print": _NEVER,
        "optimizer": optimizer,
    }
    if plan.tensor > 1:
        # Of tied embeddings DeepSpeed would split the vocabulary too, and replace the loss.
        document["tensor_parallel"] = {"autotp_size": plan.tensor, "vocab_parallel_lm_head": False}
    if plan.precision is not Precision.FP32:
        document[str(plan.precision)] = {"enabled": True}
    return document


def _optimizer(learning_rate: float, weight_decay: float) -> dict[str, Any]:
    return {
        "type": "AdamW",
        "params": {
            "lr": learning_rate,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "weight_decay": weight_decay,
            "torch_adam": True,  # DeepSpeed's own would be compiled first
        },
    }


def _zero(
    plan: ParallelismPlan, bucket: int | str, threshold: int | str, prefetch: int
) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage": plan.zero_stage,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
        "overlap_comm": False,
        "contiguous_gradients": True,
    }
    if plan.zero_stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": prefetch,
            "stage3_param_persistence_threshold": threshold,
            "stage3_max_live_parameters": bucket if isinstance(bucket, str) else 2 * bucket,
            # The default, 1e9, keeps whole models gathered from forward to backward.
            "stage3_max_reuse_distance": 0,
        }
    return zero


def _offloaded(plan: ParallelismPlan, *, pinned: bool) -> dict[str, Any]:
    """Return what says that the host has the optimizer's states, or the weights as well."""
    place = {"device": "cpu", "pin_memory": pinned}
    names = {
        Offload.NONE: (),
        Offload.OPTIMIZER: ("offload_optimizer",),
        Offload.PARAMETERS: ("offload_optimizer", "offload_param"),
    }
    return {name: dict(place) for name in names[plan.offload]}
