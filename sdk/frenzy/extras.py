"""Packages that a bare client does not have, by the extra that installs them."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from frenzy_shared.errors import Misconfigured
from frenzy_shared.installing import install

_SERVER: Final = (
    "nats",
    "nkeys",
    "cryptography",
    "redis",
    "fastapi",
    "uvicorn",
    "pydantic_settings",
    "opentelemetry",
    "prometheus_client",
    "numpy",
)
_NODE: Final = ("torch", "deepspeed", "transformers", "safetensors", "psutil", "pynvml")
_OPTIONAL: Final = frozenset((*_SERVER, *_NODE))


def missing() -> list[str]:
    """Name the packages which running Frenzy on this machine needs and which are not there."""
    return [name for name in (*_SERVER, *_NODE) if find_spec(name) is None]


def is_optional(module: str | None) -> bool:
    """Tell whether a module that could not be imported belongs to an extra."""
    return (module or "").partition(".")[0] in _OPTIONAL


def not_installed(modules: Iterable[str]) -> Misconfigured:
    """Build the error for packages that are not there: it names them and how to get them."""
    names = [module.partition(".")[0] for module in modules]
    torch = ("pip install torch",) if "torch" in names else ()
    extra = "server" if set(names) <= set(_SERVER) else "all"
    return Misconfigured(
        f"not installed: {', '.join(names)}",
        suggestions=(*torch, install(extra)),
    )
