"""What the node agent tells a rank, read once from the environment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frenzy_shared.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """The device that this rank pretends to run on. ``speed`` is relative to this machine."""

    memory_bytes: int | None
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnvironment:
    """One rank of one attempt. ``emulation`` is ``None`` on a real device.

    A rank with a ``release_file`` gets ready while the attempt before it still trains, and waits
    for that file, which says from which checkpoint to go on.
    """

    rank: int
    world_size: int
    attempt: int
    plan_file: Path
    deepspeed_file: Path
    checkpoint_dir: Path
    report_file: Path
    data: Path
    tokenizer: Path | None
    resume_from: Path | None
    release_file: Path | None
    emulation: Emulation | None


def read_environment(environ: Mapping[str, str]) -> RankEnvironment:
    """Read the variables that the node agent sets for the built-in trainer.

    Raises:
        Misconfigured: naming a variable that is absent or not a number.
    """
    return RankEnvironment(
        rank=_whole(environ, "RANK"),
        world_size=_whole(environ, "WORLD_SIZE"),
        attempt=_whole(environ, "FRENZY_ATTEMPT"),
        plan_file=Path(_required(environ, "FRENZY_PLAN")),
        deepspeed_file=Path(_required(environ, "FRENZY_DEEPSPEED_CONFIG")),
        checkpoint_dir=Path(_required(environ, "FRENZY_CHECKPOINT_DIR")),
        report_file=Path(_required(environ, "FRENZY_REPORT_FILE")),
        data=Path(_required(environ, "FRENZY_DATA")),
        tokenizer=_path(environ, "FRENZY_TOKENIZER"),
        resume_from=_path(environ, "FRENZY_RESUME_FROM"),
        release_file=_path(environ, "FRENZY_RELEASE_FILE"),
        emulation=read_emulation(environ),
    )


def read_emulation(environ: Mapping[str, str]) -> Emulation | None:
    """Return the emulated device's size and speed; ``None`` on a real device.

    Raises:
        Misconfigured: a variable is set but is not a positive number.
    """
    memory = environ.get("FRENZY_EMULATED_MEMORY_BYTES")
    speed = environ.get("FRENZY_EMULATED_SPEED")
    if not memory and not speed:
        return None
    return Emulation(
        memory_bytes=int(_positive("FRENZY_EMULATED_MEMORY_BYTES", memory)) if memory else None,
        speed=_positive("FRENZY_EMULATED_SPEED", speed) if speed else 1.0,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that the node agent wrote.

    Raises:
        Misconfigured: the file is absent, unreadable or holds something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read {path}: {error}") from error
    if not isinstance(document, dict):
        raise Misconfigured(f"{path} must hold a JSON object")
    return document


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise Misconfigured(f"{name} is not set; ranks are started by Frenzy's node agent")
    return value


def _whole(environ: Mapping[str, str], name: str) -> int:
    text = _required(environ, name)
    if not text.isdecimal():
        raise Misconfigured(f"{name} must be a whole number, got {text!r}")
    return int(text)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name)
    return Path(text) if text else None


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Misconfigured(f"{name} must be a positive number, got {text!r}")
    return value
