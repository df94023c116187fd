"""Frenzy: submit a model, don't pick GPUs.

``from frenzy import Client, JobSpec``. Names are imported when first used, so that
``import frenzy`` (and ``frenzy --help``) costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from frenzy._version import __version__

if TYPE_CHECKING:
    from frenzy.client import AsyncClient, Client
    from frenzy.errors import FrenzyError
    from frenzy.job import AsyncJob, Job
    from frenzy.specs import JobSpec

__all__ = ["AsyncClient", "AsyncJob", "Client", "FrenzyError", "Job", "JobSpec", "__version__"]

_HOMES = {
    "AsyncClient": "frenzy.client",
    "AsyncJob": "frenzy.job",
    "Client": "frenzy.client",
    "FrenzyError": "frenzy.errors",
    "Job": "frenzy.job",
    "JobSpec": "frenzy.specs",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'frenzy' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
