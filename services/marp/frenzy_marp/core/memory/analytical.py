"""The analytical mode: the peak as the highest of the moments of a training step."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from frenzy_marp.core.memory.predictor import Peak, Predictor, Sharding, Workload
from frenzy_marp.core.memory.shape import element_bytes
from frenzy_shared.domain.model import Attention, ModelArchitecture
from frenzy_shared.domain.plan import Loss, MemoryTerm, Offload, ParallelismPlan
from frenzy_shared.domain.structure import FusedProjection, QueryKeyNorm

COUNTABLE: Final = 2**44  # bytes; sums stay within 64 bits below it, and no device comes near
_SUB_GROUP_ELEMENTS: Final = 500_000_000  # below DeepSpeed's, whose groups end at a parameter


def predict_peak(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    plan: ParallelismPlan,
    *,
    cuda: bool = False,
    single_step: bool = False,
) -> Peak:
    """Predict the peak of the worst rank of a data-parallel run; flags: see ``Sharding``."""
    found = _prepared(model, attention, length, plan, cuda=cuda, single_step=single_step)
    if isinstance(found, Peak):
        return found
    predictor, sharding = found
    return predictor.peak(sharding, plan.activation_checkpointing, 0, plan.loss)


def predict_moments(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    plan: ParallelismPlan,
    *,
    cuda: bool = False,
    single_step: bool = False,
) -> list[Peak]:
    """Predict the peak of every moment of a run, from the model's building on."""
    found = _prepared(model, attention, length, plan, cuda=cuda, single_step=single_step)
    if isinstance(found, Peak):
        return [found]
    predictor, sharding = found
    return predictor.moments(sharding, plan.activation_checkpointing, 0, plan.loss)


def workload_of(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    *,
    element: int,
    bucket: int,
    micro_batches: tuple[int, ...],
    cuda: bool = False,
) -> Workload:
    """Return the workload of a model, with the engine's threshold that fits it."""
    drops = model.adapters is not None and model.adapters.dropout > 0
    return Workload(
        model=model,
        attention=attention,
        length=length,
        element=element,
        bucket=bucket,
        threshold=persistence_threshold(model),
        micro_batches=micro_batches,
        fused_dropout=cuda and drops,
    )


@dataclass(frozen=True, slots=True)
class Floor:
    """A lower bound of the peak that costs nothing to compute, affine in the micro-batch.

    Weights and Adam's states, with the larger of the optimizer step and what the batch takes.
    """

    states: int
    step: int
    sequence: int

    def at(self, micro_batch: int) -> int:
        """Return the bytes below which no peak can be."""
        return self.states + max(self.step, self.sequence * micro_batch)

    def largest(self, room: int) -> int:
        """Return the largest micro-batch whose floor is at most ``room`` bytes; 0 when none."""
        if self.states + self.step > room:
            return 0
        return (room - self.states) // self.sequence


def floor_of(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    *,
    element: int,
    stage: int,
    ranks: int,
    single_step: bool = False,
    loss: Loss = Loss.FULL,
    offload: Offload = Offload.NONE,
) -> Floor:
    """Return the floor of a way to share a model's states; weights have ``element`` bytes.

    In a run of a single step Adam's moments may be nowhere but in that step.
    """
    parameters, frozen, sequence = _basis(model, attention, length, element, loss)
    own = parameters // (ranks if stage else 1)
    whole = (parameters + frozen) // (ranks if stage == 3 else 1)
    if offload is not Offload.NONE:
        weights = 0 if offload is Offload.PARAMETERS else element * whole
        return Floor(states=weights, step=0, sequence=sequence)
    always, in_step = (0, 8 * own) if single_step else (8 * own, 0)
    return Floor(
        states=element * whole + always,
        step=in_step + (8 * min(own, _SUB_GROUP_ELEMENTS) if stage else 0),
        sequence=sequence,
    )


def persistence_threshold(model: ModelArchitecture) -> int:
    """Return the elements up to which ZeRO-3 keeps a parameter whole: norms and biases."""
    widest = model.hidden_size
    if model.attention_bias:
        fused = model.structure.fused is not FusedProjection.NONE
        widest = max(widest, model.query_size + (2 * model.key_size if fused else 0))
    if model.structure.query_key_norm is QueryKeyNorm.WHOLE:
        widest = max(widest, model.query_size)
    if model.mlp_bias:
        widest = max(widest, model.intermediate_size * (2 if model.structure.fused_gate else 1))
    return widest


def _prepared(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    plan: ParallelismPlan,
    *,
    cuda: bool,
    single_step: bool,
) -> tuple[Predictor, Sharding] | Peak:
    """Return what predicts a plan, or at once its floor where that is beyond any device."""
    element = element_bytes(plan.precision)
    floor = floor_of(
        model,
        attention,
        length,
        element=element,
        stage=plan.zero_stage,
        ranks=plan.data,
        single_step=single_step,
        loss=plan.loss,
        offload=plan.offload,
    ).at(plan.micro_batch_size)
    if floor > COUNTABLE:
        return Peak(floor, "every moment", (MemoryTerm(name="at least", size_bytes=floor),))
    workload = workload_of(
        model,
        attention,
        length,
        element=element,
        bucket=plan.reduce_bucket_elements,
        micro_batches=(plan.micro_batch_size,),
        cuda=cuda,
    )
    sharding = Sharding(
        stage=plan.zero_stage,
        ranks=plan.data,
        accumulates=plan.gradient_accumulation_steps > 1,
        cuda=cuda,
        single_step=single_step,
        offload=plan.offload,
    )
    return _predictor(workload), sharding


@lru_cache(maxsize=64)
def _basis(
    model: ModelArchitecture, attention: Attention, length: int, element: int, loss: Loss
) -> tuple[int, int, int]:
    """Return the trained and the frozen parameters, and the least bytes of one sequence.

    The largest of the loss (12 bytes a logit, if there are all, and one kept tensor a layer), a
    layer's widest activation, and its attention scores where they are written out.
    """
    logits = 12 * model.vocab_size if loss is Loss.FULL else 0
    ending = logits + model.hidden_size * model.num_layers * element
    widest = max(model.num_heads * model.head_dim, model.intermediate_size) * element
    scores = length * model.num_heads * element if attention is Attention.EAGER else 0
    frozen = 0 if model.adapters is None else model.num_parameters
    return model.num_trained_parameters, frozen, length * max(ending, widest, scores)


@lru_cache(maxsize=64)
def _predictor(workload: Workload) -> Predictor:
    return Predictor(workload)
