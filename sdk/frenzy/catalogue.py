"""The user's own catalogue: FRENZY_CATALOG, else ``$XDG_CONFIG_HOME/frenzy/catalog.yaml``."""

import os
from functools import lru_cache
from pathlib import Path

from frenzy import config
from frenzy_shared.catalog.gpus import use_own_gpus
from frenzy_shared.messages.catalogue import Catalogue, read_catalogue


def own() -> Catalogue:
    """Return the user's catalogue, an empty one where there is no file.

    Raises:
        InvalidSpec: the file is named but cannot be read, or an entry is wrong.
    """
    named = os.environ.get("FRENZY_CATALOG")
    path = Path(named) if named else config.user_file().with_name("catalog.yaml")
    if not named and not path.exists():
        return Catalogue()
    return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


def use_gpus() -> None:
    """Let this process know the user's GPUs.

    Raises:
        InvalidSpec: see ``own``.
    """
    use_own_gpus(own().own_gpus)


@lru_cache(maxsize=4)
def _read(path: Path, changed_ns: int) -> Catalogue:  # noqa: ARG001 - a changed file is read again
    return read_catalogue(path)
