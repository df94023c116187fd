"""The side of ``frenzy estimate`` that traces: which module, and whose code it is."""

import re
from pathlib import Path
from typing import Any, Final

from frenzy.errors import FrenzyError
from frenzy_shared.messages.trace import Factory

TRACED: Final = ("traced", "traced-layers")
MODES: Final = ("analytical", *TRACED)
_FACTORY: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def factory_of(model: str | None) -> Factory | None:
    """Return the factory that MODEL names (``module:function``), imported from this folder."""
    if model is None or not _FACTORY.fullmatch(model):
        return None
    return Factory(target=model, folder=str(Path.cwd()))


def stand_in(factory: Factory) -> dict[str, Any]:
    """Return what a job specification has for a model that only its factory knows."""
    return {"model_type": factory.target}


def mode_of(asked: str | None, factory: Factory | None) -> str:
    """Return the mode of an estimate: traced for a factory, else analytical, unless asked for.

    Raises:
        FrenzyError: there is no such mode, or the factory's module has no formulas.
    """
    mode = asked or ("analytical" if factory is None else "traced")
    if mode not in MODES:
        raise FrenzyError(
            f"--mode {mode!r} is not a way to estimate a model",
            suggestions=[f"one of: {', '.join(MODES)}"],
        )
    if factory is not None and mode != "traced":
        raise FrenzyError(
            f"{factory.target} is code, and --mode {mode} only knows configurations",
            suggestions=["use --mode traced, or leave --mode out"],
        )
    return mode
