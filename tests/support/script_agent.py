"""The node agent as a process that runs scripts plainly: no torch, no trainer's launcher."""

import sys

from frenzy_orchestrator.app import PROGRAMS, run
from frenzy_orchestrator.core.launch import Programs
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load

SCRIPTS = Programs(
    trainer=PROGRAMS.trainer,
    script=(sys.executable, "-I", "-S"),  # starts in 20 ms
    bin_folder=PROGRAMS.bin_folder,
)


async def _run() -> None:
    await run(load(OrchestratorSettings), SCRIPTS)


if __name__ == "__main__":
    main(_run)
