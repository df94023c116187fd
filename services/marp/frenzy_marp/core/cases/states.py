"""Weights, gradients, master copies and optimizer states of one rank, bytes."""

from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.geometry import Geometry, matrix_parameters

_WHOLE_WEIGHTS = frozenset(
    {
        word.Sharding.NONE,
        word.Sharding.DDP,
        word.Sharding.ZERO1,
        word.Sharding.ZERO2,
        word.Sharding.DIST_OPTIMIZER,
    }
)
_WHOLE_GRADIENTS = frozenset(
    {word.Sharding.NONE, word.Sharding.DDP, word.Sharding.ZERO1, word.Sharding.DIST_OPTIMIZER}
)
_WHOLE_OPTIMIZER = frozenset({word.Sharding.NONE, word.Sharding.DDP})
_ZERO = frozenset({word.Sharding.ZERO1, word.Sharding.ZERO2, word.Sharding.ZERO3})
_SUB_GROUP_ELEMENTS = 1_000_000_000  # that ZeRO-3 steps at once; stages 1 and 2 step whole
# Bytes of a stored quantised weight: 4 bit and one fp32 scale for 64 (NF4), the scales in 8 bit
# (double), 8 bit, 4 bit and 16-bit scale, 4-bit zero and index for 128 (GPTQ).
_QUANTISED = {
    word.Quantization.NF4: 0.5 + 4 / 64,
    word.Quantization.NF4_DOUBLE: 0.5 + 1 / 64 + 4 / (64 * 256),
    word.Quantization.INT8: 1.0 + 3 / 128,
    word.Quantization.GPTQ4: 0.5 + 2.5 / 128,
}
# Bytes of state a parameter, for the optimizers whose states are not two of the state dtype.
_STATE_BYTES = {
    word.Optimizer.ADAMW_8BIT: 2.0,
    word.Optimizer.PAGED_ADAMW_8BIT: 2.0,
    word.Optimizer.ADAMW_4BIT: 1.0,
    word.Optimizer.ADAFACTOR: 0.02,
    word.Optimizer.SGD: 0.0,
    word.Optimizer.NONE: 0.0,
}
_ONE_STATE = frozenset({word.Optimizer.SGD_MOMENTUM, word.Optimizer.MUON, word.Optimizer.LION})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """What one rank holds between steps, and what the step needs for a moment.

    ``gradients`` are those that the rank stores; ``persistent_gradients`` says that they exist
    during forward too (buffers, or accumulation before the micro-batch that makes the peak);
    ``casts_gradients`` that they are cast before they are added to their sum; ``copies_share``
    that a rank's share of them is copied out; ``step_gradients`` are those left when the update
    begins.
    """

    weights: float
    master: float
    optimizer: float
    gradients: float
    buffers: float
    step: float
    step_gradients: float
    persistent_gradients: bool
    casts_gradients: bool
    copies_share: bool

    @property
    def resident(self) -> float:
        """Return what is always there once training runs."""
        return self.weights + self.master + self.optimizer + self.buffers


def state_bytes(run: Run, geometry: Geometry) -> StateBytes:
    """Return the states of one rank after sharding."""
    training, sharding = run.training, run.parallelism.sharding
    trainable = trainable_parameters(run, geometry)
    shard = run.parallelism.shard_degree
    optimizer_shard = 1 if sharding in _WHOLE_OPTIMIZER else shard
    gradient_shard = 1 if sharding in _WHOLE_GRADIENTS else shard
    in_host = training.offload in {word.Offload.OPTIMIZER, word.Offload.PARAMS_AND_OPTIMIZER}
    owned = _owned(run, geometry, trainable, optimizer_shard)
    master = 4.0 * owned if training.master_weights else 0.0
    optimizer = optimizer_bytes(run) * owned
    size = training.grad_dtype.size_bytes
    if _sums_apart(run):
        size += training.param_dtype.size_bytes
    gradients = trainable * size / gradient_shard
    if training.optimizer_in_backward:
        gradients = 0.0
    return StateBytes(
        weights=_weights(run, geometry),
        master=0.0 if in_host else master,
        optimizer=0.0 if in_host else optimizer,
        gradients=gradients,
        buffers=_buffers(run, trainable) + _cast_weights(run, geometry),
        step=0.0 if in_host else _step(run, owned),
        step_gradients=0.0 if _frees_gradients(run) else gradients,
        persistent_gradients=_persistent(run),
        copies_share=_frees_gradients(run),
        casts_gradients=_sums_apart(run) and training.framework is not word.Framework.NANOTRON,
    )


def trainable_parameters(run: Run, geometry: Geometry) -> float:
    """Return the trained parameters of the rank before data-parallel sharding."""
    adapter = run.training.adapter
    if adapter is not None:
        return adapter.trainable_parameters / (run.parallelism.tensor * run.parallelism.pipeline)
    return float(geometry.total)


def optimizer_bytes(run: Run) -> float:
    """Return the bytes of optimizer state a parameter, master copy apart."""
    optimizer = run.training.optimizer
    if optimizer in _STATE_BYTES:
        return _STATE_BYTES[optimizer]
    sizes = {word.StateDtype.BF16: 2.0, word.StateDtype.INT8: 1.0}
    each = sizes.get(run.training.state_dtype, 4.0)
    return each if optimizer in _ONE_STATE else 2 * each


def weight_bytes(run: Run, parameters: float) -> float:
    """Return the stored bytes of ``parameters`` of the model's weights, quantised ones included."""
    training = run.training
    plain = training.param_dtype.size_bytes
    if training.quantization is None:
        return parameters * plain
    share = matrix_parameters(run.model) / run.model.num_parameters
    quantised = parameters * share * _QUANTISED[training.quantization]
    return quantised + parameters * (1 - share) * plain


def _weights(run: Run, geometry: Geometry) -> float:
    training, parallel = run.training, run.parallelism
    stored = weight_bytes(run, geometry.total)
    if training.adapter is not None:
        size = (training.adapter_dtype or training.param_dtype).size_bytes
        stored += training.adapter.trainable_parameters * size
    if parallel.sharding in _WHOLE_WEIGHTS:
        return stored
    if training.offload is word.Offload.PARAMS_AND_OPTIMIZER:
        return 0.0
    sharded = stored / parallel.shard_degree
    if parallel.sharding is word.Sharding.FSDP_GRAD_OP:
        return sharded + geometry.total * training.compute_dtype.size_bytes
    return sharded


def _owned(run: Run, geometry: Geometry, trainable: float, shard: int) -> float:
    """Return the parameters whose optimizer state the rank owns; experts shard over fewer ranks."""
    parallel = run.parallelism
    if not geometry.experts or parallel.expert == 1 or run.training.adapter is not None:
        return trainable / shard
    if parallel.sharding is not word.Sharding.DIST_OPTIMIZER:
        return trainable / shard if shard == 1 else _with_experts(geometry, shard, parallel.expert)
    group = parallel.data * parallel.context * parallel.tensor
    replicas = max(1, group // (parallel.expert * parallel.expert_tensor))
    experts = geometry.layers * geometry.experts
    return (geometry.total - experts) / shard + experts / replicas


def _with_experts(geometry: Geometry, shard: int, expert: int) -> float:
    experts = geometry.layers * geometry.experts
    return (geometry.total - experts) / shard + experts / max(1, shard // expert)


def _sums_apart(run: Run) -> bool:
    """Return whether fp32 sums exist beside autograd's own 16-bit gradients.

    nanotron's accumulator, and DeepSpeed's BF16_Optimizer; Megatron has one fp32 buffer only.
    """
    training = run.training
    apart = {word.Framework.NANOTRON, word.Framework.MEGATRON_DEEPSPEED, word.Framework.DEEPSPEED}
    mixed = training.grad_dtype is word.Dtype.FP32 and training.param_dtype is not word.Dtype.FP32
    return training.framework in apart and training.master_weights and mixed


def _persistent(run: Run) -> bool:
    training = run.training
    if training.optimizer_in_backward:
        return False
    owns_buffers = training.framework in {
        word.Framework.MEGATRON,
        word.Framework.NANOTRON,
        word.Framework.MEGATRON_DEEPSPEED,
    }
    flat = run.parallelism.sharding is word.Sharding.ZERO3  # one buffer, from the start
    return owns_buffers or flat or training.accumulation > 1 or run.parallelism.pipeline > 1


def _buffers(run: Run, trainable: float) -> float:
    """Return reduction buffers: DDP's copy of the gradients, ZeRO's buckets.

    DeepSpeed allocates a bucket at its full size, however few parameters are trained.
    """
    parallel, training = run.parallelism, run.training
    megatron = training.framework in {word.Framework.MEGATRON, word.Framework.NANOTRON}
    if parallel.sharding is word.Sharding.DDP and not megatron:
        return trainable * training.grad_dtype.size_bytes
    if parallel.sharding in {word.Sharding.ZERO1, word.Sharding.ZERO2} and not megatron:
        elements = parallel.bucket_elements or min(500_000_000, run.model.hidden_size**2)
        if training.framework is word.Framework.COLOSSALAI:  # no buffer of its own beyond them
            elements = min(elements, int(trainable))
        return 2.0 * elements * (2 if parallel.overlap_comm else 1)
    return 0.0


def _cast_weights(run: Run, geometry: Geometry) -> float:
    """Return autocast's 16-bit copies of fp32 weights, which backward keeps."""
    training = run.training
    casts = training.autocast and training.param_dtype is word.Dtype.FP32
    whole = run.parallelism.sharding in _WHOLE_WEIGHTS
    if casts and whole and training.checkpointing is not word.Checkpointing.FULL:
        return 2.0 * geometry.total
    return 0.0


def _step(run: Run, owned: float) -> float:
    """Return the temporaries of the update.

    foreach makes one tensor of every parameter at once; Adafactor the update of its largest
    matrix, three times; ZeRO an fp32 copy of the gradients, in stage 3 of a sub-group at a time.
    """
    training, sharding = run.training, run.parallelism.sharding
    if training.optimizer is word.Optimizer.ADAFACTOR:
        return 3 * 4.0 * run.model.vocab_size * run.model.hidden_size
    foreach = training.optimizer_impl is word.OptimizerImplementation.FOREACH
    if sharding in _ZERO and training.master_weights and not _sums_apart(run):
        whole = sharding is not word.Sharding.ZERO3
        at_once = owned if whole else min(owned, _SUB_GROUP_ELEMENTS)
        return at_once * (8.0 if foreach else 4.0)
    if foreach:
        size = training.adapter_dtype or training.param_dtype
        return owned * (4 if training.master_weights else size.size_bytes)
    return 0.0


def _frees_gradients(run: Run) -> bool:
    """Return whether DeepSpeed's stages 1 and 2 copy a share of the gradients and free all."""
    copies = run.parallelism.sharding in {word.Sharding.ZERO1, word.Sharding.ZERO2}
    own = run.training.framework is not word.Framework.COLOSSALAI
    return copies and own and run.training.master_weights and not _sums_apart(run)
