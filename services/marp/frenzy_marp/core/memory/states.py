"""What stays on a rank between micro-steps, and what the optimizer step adds, by ZeRO stage.

Sources: DeepSpeed 0.19.8 runtime/fp16/unfused_optimizer.py (stage 0, bf16), torch AdamW with
foreach off (stage 0, fp32), runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py; torch/optim/
adam.py: in ``_single_tensor_adam`` ``sqrt`` and ``div`` make two temporaries of a tensor's size, in
``_multi_tensor_adam`` (CUDA) only the square roots are new, but of all tensors at once.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from frenzy_marp.core.memory.tape import BLOCK_BYTES
from frenzy_shared.domain.plan import Offload

Elements = npt.NDArray[np.int64]

_NONE: Final[Elements] = np.zeros(0, dtype=np.int64)
_FP32: Final = 4
_MOMENTS: Final = 2 * _FP32  # Adam's exp_avg and exp_avg_sq
_TEMPORARIES: Final = 2 * _FP32  # of one Adam update, tensor by tensor
_TEMPORARIES_AT_ONCE: Final = _FP32  # of one update of all tensors
_SUB_GROUP_ELEMENTS: Final = 1_000_000_000  # zero_optimization.sub_group_size


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of one rank. ``weights`` + ``master`` + ``moments`` + ``buffers`` are always there.

    ``step_gradients`` and ``step_temporaries`` exist during the optimizer step, beside the
    gradients of the compute precision where ``step_keeps_gradients``. ``initialisation`` is the
    highest count before the first step, all included. ``late_moments``: the engine leaves Adam's
    moments to the first optimizer step, so that nothing before it has them.
    """

    weights: int
    master: int
    moments: int
    buffers: int
    step_gradients: int
    step_temporaries: int
    step_keeps_gradients: bool
    initialisation: int
    late_moments: bool

    @property
    def resident(self) -> int:
        """Return what is there between micro-steps."""
        return self.weights + self.master + self.moments + self.buffers


def states(
    parameters: Elements,
    *,
    stage: int,
    ranks: int,
    element: int,
    bucket: int,
    persistence_threshold: int,
    frozen: Elements | None = None,
    cuda: bool = False,
    offload: Offload = Offload.NONE,
) -> States:
    """Return the model states for parameters of these sizes (elements each).

    ``frozen`` are those that are never updated: weights and nothing else, sharded in stage 3.
    What is in ``offload`` is in the node's RAM and not counted (see ``host.py``).
    """
    still = _NONE if frozen is None else frozen
    temporaries = _TEMPORARIES_AT_ONCE if cuda else _TEMPORARIES
    if stage == 3:
        prefetched = 2 * bucket * element if cuda and ranks > 1 else 0  # flat, and cut
        buffers = bucket * element + prefetched
        if offload is not Offload.NONE:
            return _offloaded_3(
                parameters,
                still,
                ranks=ranks,
                element=element,
                buffers=buffers,
                threshold=persistence_threshold,
                offload=offload,
            )
        return _stage_3(
            parameters,
            still,
            ranks=ranks,
            element=element,
            buffers=buffers,
            threshold=persistence_threshold,
            temporaries=temporaries,
        )
    if stage == 0:
        trained = _unsharded(parameters, element, cuda=cuda)
    elif offload is Offload.NONE:
        trained = _stage_1_and_2(parameters, ranks, element, temporaries)
    else:
        trained = _offloaded_1_and_2(parameters, ranks, element)
    whole = _allocated(still, element)
    return replace(
        trained,
        weights=trained.weights + whole,
        initialisation=trained.initialisation + whole,
    )


def partition_elements(total: int, ranks: int) -> int:
    """Return one rank's elements of a flat buffer padded to a multiple of 2 per rank."""
    return -(-total // (2 * ranks)) * 2


def _unsharded(parameters: Elements, element: int, *, cuda: bool) -> States:
    weights = _allocated(parameters, element)
    full = _allocated(parameters, _FP32)
    largest = _allocated(parameters.max(keepdims=True), _FP32)
    mixed = element < _FP32
    scalars = len(parameters) * BLOCK_BYTES  # Adam keeps a step count per tensor
    temporaries = full if cuda else 2 * largest
    master = full if mixed else 0
    start = weights + master + 2 * full + scalars + (full + temporaries if mixed else 0)
    return States(
        weights=weights,
        master=master,
        moments=2 * full + scalars,
        buffers=0,
        step_gradients=master,
        step_temporaries=temporaries,
        step_keeps_gradients=True,
        initialisation=start if mixed else weights,
        late_moments=not mixed,  # DeepSpeed's own wrapper makes a dummy step
    )


def _stage_1_and_2(parameters: Elements, ranks: int, element: int, temporaries: int) -> States:
    own = partition_elements(int(parameters.sum()), ranks)
    weights = own * ranks * element
    return States(
        weights=weights,
        master=own * _FP32,
        moments=own * _MOMENTS,
        buffers=0,
        step_gradients=own * _FP32,
        step_temporaries=own * temporaries,
        step_keeps_gradients=False,
        # The flat copy is made while every parameter still has its own memory.
        initialisation=max(2 * weights, weights + 2 * own * _FP32),
        late_moments=True,
    )


def _offloaded_1_and_2(parameters: Elements, ranks: int, element: int) -> States:
    """Keep the flat weights and one buffer to add up gradients in (stage_1_and_2.py).

    The flat copy is made beside the parameters, then a rank's partition is copied to be sent.
    """
    weights = partition_elements(int(parameters.sum()), ranks) * ranks * element
    buffer = _allocated(parameters.max(keepdims=True), element)
    return _on_host(weights, buffer, 2 * weights)


def _offloaded_3(
    parameters: Elements,
    frozen: Elements,
    *,
    ranks: int,
    element: int,
    buffers: int,
    threshold: int,
    offload: Offload,
) -> States:
    """Keep partitions of the weights, unless they are offloaded too, and what is always whole."""
    every = np.concatenate((parameters, frozen))
    persistent = _allocated(every[every <= threshold], element)
    if offload is Offload.PARAMETERS:
        # Where only the host has partitions, one rank has whole copies of them as well.
        return _on_host(persistent, buffers, _allocated(every, element))
    still = _allocated(-(-frozen // ranks), element)
    own = int((-(-parameters // ranks)).sum()) * element + still
    largest = -(-every.max(keepdims=True) // ranks)
    cutting = _allocated(every, element) + _allocated(largest, element)
    weights = own + (persistent if ranks > 1 else 0)
    # The first bucket is there when all persistent parameters are gathered.
    return _on_host(weights, buffers, max(cutting, weights + buffers))


def _on_host(weights: int, buffers: int, initialisation: int) -> States:
    """Return what is left on a device when the optimizer runs on the host."""
    return States(
        weights=weights,
        master=0,
        moments=0,
        buffers=buffers,
        step_gradients=0,
        step_temporaries=0,
        step_keeps_gradients=False,
        initialisation=initialisation,
        late_moments=False,
    )


def _stage_3(
    parameters: Elements,
    frozen: Elements,
    *,
    ranks: int,
    element: int,
    buffers: int,
    threshold: int,
    temporaries: int,
) -> States:
    partitions = -(-parameters // ranks)
    own = int(partitions.sum())
    every = np.concatenate((parameters, frozen))
    persistent = _allocated(every[every <= threshold], element)
    updated = _largest_sub_group(partitions)
    still = _allocated(-(-frozen // ranks), element)  # each has a partition of its own
    gradients = own * element + buffers  # the gradients' partitions are always there
    # Parameters are cut one by one, each beside its first partition and all that are still whole
    # (_partition_param, partition_parameters.py): highest at the first large one, the embedding.
    largest = -(-every.max(keepdims=True) // ranks)
    cutting = _allocated(every, element) + _allocated(largest, element)
    # Then come masters and a group's empty gradients (initialize_optimizer_states, stage3.py).
    building = own * element + still + own * _FP32 + max(gradients, updated * _FP32)
    return States(
        weights=own * element + still + (persistent if ranks > 1 else 0),
        master=own * _FP32,
        moments=own * _MOMENTS,
        buffers=gradients,
        step_gradients=updated * _FP32,
        step_temporaries=updated * temporaries,
        step_keeps_gradients=False,
        initialisation=max(cutting, building),
        late_moments=True,
    )


def _largest_sub_group(partitions: Elements) -> int:
    """Return the elements that stage 3 updates at once; ``partitions`` are in backward's order.

    A group ends with the parameter that fills it (__create_fp16_sub_groups, stage3.py).
    """
    own = int(partitions.sum())
    if own <= _SUB_GROUP_ELEMENTS:
        return own
    largest = group = 0
    for size in reversed(partitions.tolist()):
        group += size
        if group >= _SUB_GROUP_ELEMENTS:
            largest, group = max(largest, group), 0
    return max(largest, group)


def _allocated(parameters: Elements, element: int) -> int:
    """Return what the allocator takes for tensors of ``parameters`` elements."""
    return int((-(-parameters * element // BLOCK_BYTES)).sum()) * BLOCK_BYTES
