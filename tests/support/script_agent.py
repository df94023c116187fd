"""The node agent as a process that runs scripts plainly: no torch, no trainer's launcher."""

import os
import sys

from frenzy_orchestrator.app import PROGRAMS, run
from frenzy_orchestrator.core.launch import Programs
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load

TRAINER = "TEST_TRAINER"  # a script in the built-in trainer's place
PLAIN = (sys.executable, "-I", "-S")  # starts in 20 ms
SCRIPTS = Programs(
    trainer=(*PLAIN, os.environ[TRAINER]) if TRAINER in os.environ else PROGRAMS.trainer,
    script=PLAIN,
    bin_folder=PROGRAMS.bin_folder,
)


async def _run() -> None:
    await run(load(OrchestratorSettings), SCRIPTS)


if __name__ == "__main__":
    main(_run)
