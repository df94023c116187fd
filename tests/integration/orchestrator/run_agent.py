"""The node agent as its own process; scripts run as they are, without the trainer's launcher."""

from tests.support.agent import SCRIPTS

from frenzy_orchestrator.app import run
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load


async def _run() -> None:
    await run(load(OrchestratorSettings), SCRIPTS)


if __name__ == "__main__":
    main(_run)
