"""``python -m frenzy.local <folder>``: the supervisor that `frenzy up` leaves in the background."""

import logging
import sys
from pathlib import Path

from frenzy.local.layout import Layout
from frenzy.local.supervisor import supervise
from frenzy_shared.errors import Misconfigured
from frenzy_shared.runtime import main

log = logging.getLogger(__name__)


async def run() -> None:
    """Supervise the folder named on the command line."""
    if len(sys.argv) != 2:
        raise Misconfigured("usage: python -m frenzy.local <folder>")
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel("WARNING")
    await supervise(Layout(Path(sys.argv[1])), lambda url: log.info("ready at %s", url))


if __name__ == "__main__":
    main(run)
