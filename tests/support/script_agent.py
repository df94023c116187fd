"""The node agent as a process whose ranks are plain scripts: no torch, no trainer's launcher."""

import sys
from pathlib import Path

from frenzy_orchestrator.app import run
from frenzy_orchestrator.core.launch import Programs
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load

SCRIPTS = Programs(
    trainer=(sys.executable, "-c", "raise SystemExit('no trainer in this test')"),
    script=(sys.executable, "-I", "-S"),  # starts in 20 ms
    bin_folder=str(Path(sys.executable).parent),
)


async def _run() -> None:
    await run(load(OrchestratorSettings), SCRIPTS)


if __name__ == "__main__":
    main(_run)
