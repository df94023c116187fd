"""What a trace is never asked to do. Nothing here imports torch."""

from collections.abc import Mapping
from typing import Any, Final

from frenzy_shared.errors import InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.trace import TraceRequest

_RUNS_CODE: Final = ("auto_map", "custom_pipelines", "quantization_config")
_NESTED: Final = 16


def check(request: TraceRequest, *, allow_code: bool) -> None:
    """Refuse a request that names code which nobody allowed.

    Raises:
        InvalidSpec: it has no model or two, or a factory without ``allow_code``.
        InvalidModelConfig: the configuration points at code or at quantised weights.
    """
    if (request.model is None) == (request.factory is None):
        raise InvalidSpec("give either model or factory")
    if request.factory is not None and not allow_code:
        raise InvalidSpec("factory: runs code, which needs --allow-code")
    if request.model is not None:
        _refuse_code(request.model)


def _refuse_code(config: Mapping[str, Any], depth: int = 0) -> None:
    if depth > _NESTED:
        raise InvalidModelConfig(f"model: nested more than {_NESTED} deep")
    for name, value in config.items():
        if name in _RUNS_CODE and value:
            raise InvalidModelConfig(
                f"model.{name}: is never followed",
                suggestions=["use an architecture of the installed transformers library"],
            )
        if isinstance(value, Mapping):
            _refuse_code(value, depth + 1)
