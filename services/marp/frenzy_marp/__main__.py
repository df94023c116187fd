"""Run MARP: ``python -m frenzy_marp``, settings from FRENZY_* variables."""

from frenzy_marp.app import run
from frenzy_marp.settings import MarpSettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load


async def _run() -> None:
    await run(load(MarpSettings))


if __name__ == "__main__":
    main(_run)
