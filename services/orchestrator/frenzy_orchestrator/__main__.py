"""Run the node agent: ``python -m frenzy_orchestrator``, settings from FRENZY_* variables."""

from frenzy_orchestrator.app import run
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load


async def _run() -> None:
    await run(load(OrchestratorSettings))


if __name__ == "__main__":
    main(_run)
