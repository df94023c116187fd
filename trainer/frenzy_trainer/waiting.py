"""Wait, ready to train, for the end of the attempt before this one.

A rank with a release file has done everything that needs no checkpoint: imports, data, process
group, model, engine. The node agent writes the file when the attempt before has saved and ended.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from frenzy_shared.errors import Misconfigured
from frenzy_trainer.environment import read_json
from frenzy_trainer.errors import Abandoned

_LOOK_S: Final = 0.01


def await_release(file: Path, stopped: Callable[[], bool]) -> Path | None:
    """Return the checkpoint to go on from, ``None`` for none, once ``file`` is there.

    Raises:
        Abandoned: ``stopped`` became true first.
        Misconfigured: the file is not what an agent writes.
    """
    while not file.exists():
        if stopped():
            raise Abandoned
        time.sleep(_LOOK_S)
    resume_from = read_json(file).get("resume_from")
    if not isinstance(resume_from, str):
        raise Misconfigured(f"{file} does not say from which checkpoint to go on")
    return Path(resume_from) if resume_from else None
