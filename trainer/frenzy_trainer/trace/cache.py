"""Answers on disk, by what decides them: the request and the versions of what was run.

Below ``$XDG_CACHE_HOME/frenzy/traces``. An entry that cannot be read is made again.
"""

import hashlib
import json
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from pydantic import ValidationError

from frenzy_shared.messages.trace import TraceAnswer, TraceRequest
from frenzy_trainer.console import complain


def default_folder() -> Path:
    """Return where this user's answers are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "frenzy" / "traces"


def entry(folder: Path, request: TraceRequest, versions: dict[str, str]) -> Path:
    """Return the file of an answer."""
    decides = [request.model_dump(mode="json"), versions, sorted(TraceAnswer.model_fields)]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return folder / f"{digest}.json"


def load(path: Path) -> TraceAnswer | None:
    """Return a kept answer, or ``None`` with a warning when it is damaged."""
    try:
        return TraceAnswer.decode(path.read_bytes()).model_copy(update={"cached": True})
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        complain(f"warning: {path} is not a trace ({type(error).__name__}); tracing again")
        return None


def keep(path: Path, answer: TraceAnswer) -> None:
    """Write an answer; a disk that refuses it costs only the next trace."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            file.write(answer.encode())
        Path(file.name).replace(path)
    except OSError as error:
        complain(f"warning: the trace is not kept in {path.parent}: {error.strerror}")
