"""Run the scheduler: ``python -m frenzy_scheduler``, settings from FRENZY_* variables."""

from frenzy_scheduler.app import run
from frenzy_scheduler.settings import SchedulerSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load


async def _run() -> None:
    await run(load(SchedulerSettings))


if __name__ == "__main__":
    main(_run)
