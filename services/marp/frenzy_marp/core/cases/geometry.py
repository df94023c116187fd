"""What one rank of a run holds: parameters by place, layers, tokens, micro-batches in flight."""

from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import CaseModel, CaseParallelism, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Parameters of one rank before data-parallel sharding, and its share of the work.

    ``dense`` and ``experts`` are of one average block; ``embedding`` and ``head`` are 0 on
    stages that have none. ``tokens`` are positions per micro-batch after context parallelism.
    """

    stage: int
    layers: int
    embedding: int
    head: int
    dense: int
    experts: int
    tokens: float
    in_flight: float

    @property
    def block(self) -> int:
        """Return the parameters of one average block."""
        return self.dense + self.experts

    @property
    def ends(self) -> int:
        """Return the parameters outside the blocks."""
        return self.embedding + self.head

    @property
    def total(self) -> int:
        """Return all parameters of the rank."""
        return self.ends + self.layers * self.block


def geometries(run: Run) -> tuple[Geometry, ...]:
    """Return the ranks that may be the one that was read: one of each kind of stage."""
    last = run.parallelism.pipeline - 1
    if last == 0 or run.rank in {word.RankOf.RANK0, word.RankOf.MEAN}:
        return (_geometry(run, 0),)
    if run.rank is word.RankOf.LAST_STAGE:
        return (_geometry(run, last),)
    return tuple(_geometry(run, stage) for stage in sorted({0, min(1, last), last}))


def matrix_parameters(model: CaseModel) -> int:
    """Return the parameters of the linear layers of all blocks: what quantisation stores."""
    moe = _moe_layers(model)
    whole = model.num_layers * _attention(model) + moe * _experts(model)
    whole += moe * 3 * model.hidden_size * model.shared_expert_intermediate_size
    whole += (model.num_layers - moe) * _mlp(model)
    return min(whole, model.num_parameters - _embedding(model))


def _geometry(run: Run, stage: int) -> Geometry:
    model, parallel = run.model, run.parallelism
    first, last = stage == 0, stage == parallel.pipeline - 1
    layers = _stage_layers(model, parallel, stage)
    dense, experts = _average_block(model)
    expert_split = parallel.expert * parallel.expert_tensor
    vocabulary = _embedding(model) // parallel.tensor
    positions = model.max_positions * model.hidden_size
    tied_here = model.tied_embeddings and first
    has_head = last and run.training.head is word.Head.LM and not tied_here
    tokens = (run.training.tokens_low + run.training.tokens_high) / 2
    chunks, steps = _micro_batches(run)
    return Geometry(
        stage=stage,
        layers=layers,
        embedding=vocabulary + positions if first else 0,
        head=vocabulary if has_head else 0,
        dense=dense // parallel.tensor,
        experts=experts // expert_split,
        tokens=tokens / parallel.context / chunks,
        in_flight=_in_flight(parallel, steps, stage),
    )


def _micro_batches(run: Run) -> tuple[int, int]:
    """Return into how many parts a rank's batch is split, and how many fill the pipeline.

    torchtitan splits its batch, one part a stage. Elsewhere a pipeline with one micro-batch means
    that the source does not say how many; enough to fill it, then.
    """
    stages, accumulation = run.parallelism.pipeline, run.training.accumulation
    if stages == 1 or accumulation > 1:
        return 1, accumulation
    splits = run.training.framework is word.Framework.TORCHTITAN
    return (stages if splits and run.training.micro_batch_size > 1 else 1), stages


def _average_block(model: CaseModel) -> tuple[int, int]:
    """Return dense and expert parameters of an average block, so that the total is exact."""
    moe = _moe_layers(model)
    experts = moe * _experts(model)
    outside = _embedding(model) * (1 if model.tied_embeddings else 2)
    outside += model.max_positions * model.hidden_size
    dense = max(0, model.num_parameters - outside - experts)
    return dense // model.num_layers, experts // model.num_layers


def _stage_layers(model: CaseModel, parallel: CaseParallelism, stage: int) -> int:
    if parallel.stage_layers:
        return parallel.stage_layers[stage]
    whole, rest = divmod(model.num_layers, parallel.pipeline)
    return whole + (1 if stage < rest else 0)


def _in_flight(parallel: CaseParallelism, accumulation: int, stage: int) -> float:
    """Return micro-batches whose activations are alive on a stage.

    1F1B: p - stage, at most all of them. Interleaved with v chunks a stage: 2 (p - stage - 1) +
    (v - 1) p + 1 chunks (Megatron-LM, schedules.py), in units of a whole stage.
    """
    if parallel.pipeline == 1:
        return 1.0
    if parallel.virtual_pipeline == 1:
        return min(parallel.pipeline - stage, accumulation)
    chunks = 2 * (parallel.pipeline - stage - 1)
    chunks += (parallel.virtual_pipeline - 1) * parallel.pipeline + 1
    return min(chunks / parallel.virtual_pipeline, accumulation)


def _moe_layers(model: CaseModel) -> int:
    return max(0, model.num_layers - model.num_dense_layers) if model.num_experts else 0


def _experts(model: CaseModel) -> int:
    """Return the routed experts' parameters of one MoE layer."""
    width = model.expert_intermediate_size or model.intermediate_size
    return model.num_experts * (3 if model.gated_mlp else 2) * model.hidden_size * width


def _mlp(model: CaseModel) -> int:
    return (3 if model.gated_mlp else 2) * model.hidden_size * model.intermediate_size


def _attention(model: CaseModel) -> int:
    hidden, heads = model.hidden_size, model.num_heads
    latent = model.latent
    if latent is None:
        query, key = heads * model.head_dim, model.num_kv_heads * model.head_dim
        return hidden * (2 * query + 2 * key)
    head = latent.nope_dim + latent.rope_dim
    query = hidden * heads * head
    if latent.q_rank is not None:
        query = latent.q_rank * (hidden + heads * head)
    key = hidden * (latent.kv_rank + latent.rope_dim)
    key += latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return query + key + heads * latent.value_dim * hidden


def _embedding(model: CaseModel) -> int:
    return model.vocab_size * model.hidden_size
