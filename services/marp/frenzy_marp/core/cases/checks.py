"""Whether a run can exist at all: what no framework could start gets a reason, not a number."""

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import CaseModel, CaseParallelism, CaseTraining, Run
from frenzy_marp.core.cases.reading import CaseError

_ADAPTERS = frozenset({word.Method.LORA, word.Method.QLORA, word.Method.GPTQ_LORA})
_QUANTISED = frozenset({word.Method.QLORA, word.Method.GPTQ_LORA})
_STAGED = 1_000_000  # layers, heads or ranks: more is a mistake, whoever trains


def check_run(run: Run) -> None:
    """Refuse dimensions and degrees that contradict each other.

    Raises:
        CaseError: which fields, and what they would have to be.
    """
    _check_model(run.model)
    _check_training(run.training)
    _check_parallelism(run.parallelism, run.card.count)
    _check_split(run.model, run.parallelism)


def _check_model(model: CaseModel) -> None:
    for name, value in (("num_layers", model.num_layers), ("num_heads", model.num_heads)):
        if value > _STAGED:
            raise CaseError(f"model.{name}: at most {_STAGED} are supported, not {value}")
    if model.num_heads % model.num_kv_heads:
        raise CaseError(
            f"model.num_kv_heads: {model.num_kv_heads} do not divide {model.num_heads} heads"
        )
    if model.num_experts and not 0 < model.experts_per_token <= model.num_experts:
        raise CaseError(
            f"model.experts_per_token: 1 to num_experts ({model.num_experts}) is needed, "
            f"not {model.experts_per_token}"
        )
    if model.num_dense_layers > model.num_layers:
        raise CaseError("model.num_dense_layers: more than num_layers")


def _check_training(training: CaseTraining) -> None:
    if training.method in _ADAPTERS and training.adapter is None:
        raise CaseError(f"training.lora: missing, and the method is {training.method.value}")
    if training.method in _QUANTISED and training.quantization is None:
        raise CaseError(
            f"training.quantization: missing, and the method is {training.method.value}"
        )


def _check_parallelism(parallel: CaseParallelism, count: int) -> None:
    needed = parallel.data * parallel.tensor * parallel.pipeline * parallel.context
    if needed != count:
        raise CaseError(
            f"parallelism: data x tensor x pipeline x context is {needed}, but gpu.count is {count}"
        )
    if parallel.shard_degree > count:
        raise CaseError(
            f"parallelism.shard_degree: {parallel.shard_degree} is more than gpu.count ({count})"
        )


def _check_split(model: CaseModel, parallel: CaseParallelism) -> None:
    if parallel.pipeline > model.num_layers:
        raise CaseError(
            f"parallelism.pipeline: {parallel.pipeline} stages, "
            f"but the model has {model.num_layers} layers"
        )
    if parallel.stage_layers and sum(parallel.stage_layers) != model.num_layers:
        raise CaseError(
            f"parallelism.pipeline_layers: {sum(parallel.stage_layers)} in all, "
            f"but the model has {model.num_layers} layers"
        )
    if model.num_heads % parallel.tensor:
        raise CaseError(
            f"parallelism.tensor: {parallel.tensor} does not divide {model.num_heads} heads"
        )
    if model.num_experts and model.num_experts % parallel.expert:
        raise CaseError(
            f"parallelism.expert: {parallel.expert} does not divide {model.num_experts} experts"
        )
    if parallel.expert > 1 and not model.num_experts:
        raise CaseError("parallelism.expert: more than 1, but the model has no experts")
