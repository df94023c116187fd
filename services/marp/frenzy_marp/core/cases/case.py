"""One measured run, as data: model, training set-up, parallelism, card and readings.

Fields are those of the public cases schema; null means that the source does not say. What only
identifies a row (id, group, source, notes) is in ``Label``, apart from what predictions may see.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.reading import CaseError, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Ranks and head widths of DeepSeek's multi-head latent attention."""

    kv_rank: int
    q_rank: int | None
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseModel:
    """Dimensions of the model. ``num_parameters`` is the total, experts included."""

    family: word.Family
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    gated_mlp: bool
    norm: word.Norm
    num_parameters: int
    max_positions: int = 0  # learned ones
    num_experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    num_dense_layers: int = 0
    latent: LatentAttention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Low-rank adapters: where they are and how many parameters they add."""

    rank: int
    targets: tuple[word.Target, ...]
    dropout: float
    trainable_parameters: int
    whole_modules: bool  # embedding or head trained beside the adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTraining:
    """Training set-up. ``tokens_low`` to ``tokens_high``: positions of the largest micro-batch."""

    framework: word.Framework
    sequence_length: int
    micro_batch_size: int
    accumulation: int
    tokens_low: int
    tokens_high: int
    method: word.Method
    adapter: Adapter | None
    quantization: word.Quantization | None
    param_dtype: word.Dtype
    compute_dtype: word.Dtype
    autocast: bool
    master_weights: bool
    grad_dtype: word.Dtype
    optimizer: word.Optimizer
    state_dtype: word.StateDtype
    optimizer_impl: word.OptimizerImplementation
    checkpointing: word.Checkpointing
    checkpointing_detail: str
    attention: word.AttentionKernel
    loss: word.LossKernel
    logits_dtype: word.Dtype | None
    compiled: bool
    dropout: float
    offload: word.Offload
    packing: word.Packing
    torch_version: str
    expandable_segments: bool
    recipe: word.QuantRecipe | None
    kbit_upcast: bool
    adapter_dtype: word.Dtype | None
    loss_compiled: bool
    logits_kept: bool
    load_time_peak: bool
    head: word.Head
    optimizer_in_backward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseParallelism:
    """Degrees of parallelism and how states are divided."""

    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    sequence_parallel: bool
    virtual_pipeline: int
    stage_layers: tuple[int, ...]
    sharding: word.Sharding
    shard_degree: int
    bucket_elements: int | None
    overlap_comm: bool | None
    reshard_after_forward: bool
    reduce_dtype: word.Dtype | None
    expert_tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The device type. ``capacity_gib`` is what torch reports in total."""

    name: str
    count: int
    capacity_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything physical about a run: all that a prediction may depend on."""

    model: CaseModel
    training: CaseTraining
    parallelism: CaseParallelism
    card: Card
    rank: word.RankOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What identifies and describes a row; for reports and cross-validation only."""

    id: str
    group: str
    confidence: word.Confidence
    unexplained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run, its label, and what was observed. GiB of 2^30 bytes."""

    run: Run
    label: Label
    readings: tuple[tuple[word.Metric, float], ...]
    metric: word.Metric | None
    metric_guess: word.Metric | None
    outcome: word.Outcome | None


def parse_case(value: object, default_id: str = "") -> Case:
    """Read one JSON object of a cases file.

    Without ``readings`` the one measurement counts; without ``measured`` there is none.

    Raises:
        CaseError: a field is missing, has the wrong type, or a word outside its closed list.
    """
    fields = Fields(value, "")
    measured = fields.optional_section("measured") or Fields({}, "measured")
    metric = measured.optional_word("metric", word.Metric)
    return Case(
        run=Run(
            model=_model(fields.section("model")),
            training=_training(fields.section("training")),
            parallelism=_parallelism(fields.section("parallelism")),
            card=_card(fields.section("gpu")),
            rank=measured.optional_word("rank", word.RankOf) or word.RankOf.UNKNOWN,
        ),
        label=Label(
            id=fields.optional_text("id") or default_id,
            group=fields.optional_text("group"),
            confidence=fields.optional_word("confidence", word.Confidence)
            or word.Confidence.MEDIUM,
            unexplained=fields.flag("unexplained"),
        ),
        readings=_readings(fields, measured, metric),
        metric=metric,
        metric_guess=fields.optional_word("metric_guess", word.Metric),
        outcome=measured.optional_word("outcome", word.Outcome),
    )


def _readings(
    fields: Fields, measured: Fields, metric: word.Metric | None
) -> tuple[tuple[word.Metric, float], ...]:
    readings = fields.optional_section("readings")
    if readings is None:
        size = measured.optional_number("gib")
        return () if metric is None or size is None else ((metric, size),)
    return tuple(
        (_metric(name), readings.number(name))
        for name in readings.keys()  # noqa: SIM118 - Fields is no mapping
    )


def _metric(name: str) -> word.Metric:
    if name not in {metric.value for metric in word.Metric}:
        raise CaseError(f"readings: {name!r:.60} is no metric")
    return word.Metric(name)


def _model(fields: Fields) -> CaseModel:
    hidden = fields.count("hidden_size")
    heads = fields.count("num_heads")
    return CaseModel(
        family=fields.word("family", word.Family),
        hidden_size=hidden,
        num_layers=fields.count("num_layers"),
        num_heads=heads,
        num_kv_heads=fields.optional_count("num_kv_heads") or heads,
        head_dim=fields.optional_count("head_dim") or max(1, hidden // heads),
        intermediate_size=fields.optional_count("intermediate_size") or 4 * hidden,
        vocab_size=fields.count("vocab_size"),
        max_positions=fields.optional_count("max_positions", 0) or 0,
        tied_embeddings=fields.flag("tied_embeddings"),
        gated_mlp=fields.flag("gated_mlp"),
        norm=fields.word("norm", word.Norm),
        num_experts=fields.optional_count("num_experts", 0) or 0,
        experts_per_token=fields.optional_count("experts_per_token", 0) or 0,
        expert_intermediate_size=fields.optional_count("expert_intermediate_size", 0) or 0,
        shared_expert_intermediate_size=fields.optional_count("shared_expert_intermediate_size", 0)
        or 0,
        num_dense_layers=fields.optional_count("num_dense_layers", 0) or 0,
        latent=_latent(fields.optional_section("mla")),
        num_parameters=fields.count("num_parameters"),
    )


def _latent(fields: Fields | None) -> LatentAttention | None:
    if fields is None:
        return None
    return LatentAttention(
        kv_rank=fields.count("kv_lora_rank"),
        q_rank=fields.optional_count("q_lora_rank"),
        nope_dim=fields.count("qk_nope_head_dim"),
        rope_dim=fields.count("qk_rope_head_dim"),
        value_dim=fields.count("v_head_dim"),
    )


def _training(fields: Fields) -> CaseTraining:
    low, high = _tokens(fields)
    return CaseTraining(
        framework=fields.word("framework", word.Framework),
        sequence_length=fields.optional_count("sequence_length") or 1,
        micro_batch_size=fields.count("micro_batch_size"),
        accumulation=fields.optional_count("gradient_accumulation_steps") or 1,
        tokens_low=low,
        tokens_high=high,
        method=fields.word("method", word.Method),
        adapter=_adapter(fields.optional_section("lora")),
        quantization=fields.optional_word("quantization", word.Quantization),
        param_dtype=fields.word("param_dtype", word.Dtype),
        compute_dtype=fields.word("compute_dtype", word.Dtype),
        autocast=fields.flag("autocast"),
        master_weights=fields.flag("master_weights"),
        grad_dtype=fields.word("grad_dtype", word.Dtype),
        optimizer=fields.word("optimizer", word.Optimizer),
        state_dtype=fields.optional_word("optimizer_state_dtype", word.StateDtype)
        or word.StateDtype.FP32,
        optimizer_impl=fields.optional_word("optimizer_impl", word.OptimizerImplementation)
        or word.OptimizerImplementation.UNKNOWN,
        checkpointing=fields.word("activation_checkpointing", word.Checkpointing),
        checkpointing_detail=fields.optional_text("checkpointing_detail"),
        attention=fields.word("attention", word.AttentionKernel),
        loss=fields.word("loss", word.LossKernel),
        logits_dtype=fields.optional_word("logits_dtype", word.Dtype),
        compiled=fields.flag("compile"),
        dropout=fields.optional_number("dropout") or 0.0,
        offload=fields.word("offload", word.Offload),
        packing=fields.word("packing", word.Packing),
        torch_version=fields.optional_text("torch_version"),
        expandable_segments=fields.flag("allocator_expandable_segments"),
        recipe=fields.optional_word("quant_recipe", word.QuantRecipe),
        kbit_upcast=fields.flag("kbit_upcast"),
        adapter_dtype=fields.optional_word("adapter_dtype", word.Dtype),
        loss_compiled=fields.flag("loss_compiled"),
        logits_kept=fields.flag("logits_kept"),
        load_time_peak=fields.flag("load_time_peak"),
        head=fields.optional_word("head", word.Head) or word.Head.LM,
        optimizer_in_backward=fields.flag("optimizer_in_backward"),
    )


def _tokens(fields: Fields) -> tuple[int, int]:
    """Return the positions of a micro-batch: stated, a range, or micro-batch times length."""
    most = fields.count("micro_batch_size") * (fields.optional_count("sequence_length") or 1)
    value = fields.raw("tokens_effective")
    if value is None:
        return most, most
    if isinstance(value, Mapping):
        both = fields.section("tokens_effective")
        low, high = both.count("low"), both.count("high")
        if low > high:
            raise CaseError("training.tokens_effective: low is above high")
        return low, high
    exact = fields.count("tokens_effective")
    return exact, exact


def _adapter(fields: Fields | None) -> Adapter | None:
    if fields is None:
        return None
    return Adapter(
        rank=fields.count("rank"),
        targets=fields.words("targets", word.Target),
        dropout=fields.optional_number("dropout") or 0.0,
        trainable_parameters=fields.count("trainable_parameters"),
        whole_modules=bool(fields.raw("modules_to_save")),
    )


def _parallelism(fields: Fields) -> CaseParallelism:
    pipeline = fields.count("pipeline")
    stages = fields.counts("pipeline_layers") or ()
    if stages and len(stages) != pipeline:
        raise CaseError("parallelism.pipeline_layers: one number for each stage is needed")
    return CaseParallelism(
        data=fields.count("data"),
        tensor=fields.count("tensor"),
        pipeline=pipeline,
        context=fields.count("context"),
        expert=fields.count("expert"),
        sequence_parallel=fields.flag("sequence_parallel"),
        virtual_pipeline=fields.optional_count("virtual_pipeline") or 1,
        stage_layers=stages,
        sharding=fields.word("sharding", word.Sharding),
        shard_degree=fields.count("shard_degree"),
        bucket_elements=fields.optional_count("reduce_bucket_elements", 0),
        overlap_comm=fields.optional_flag("overlap_comm"),
        reshard_after_forward=fields.optional_flag("reshard_after_forward") is not False,
        reduce_dtype=fields.optional_word("reduce_dtype", word.Dtype),
        expert_tensor=fields.optional_count("expert_tensor") or 1,
    )


def _card(fields: Fields) -> Card:
    return Card(
        name=fields.text("type"),
        count=fields.count("count"),
        capacity_gib=fields.optional_number("capacity_gib"),
    )
