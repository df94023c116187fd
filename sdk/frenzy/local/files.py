"""Small files that are whole or absent, and private where they hold secrets."""

import json
import os
from pathlib import Path
from typing import Any


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` with mode 0600, all or nothing."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def write_json(path: Path, value: object) -> None:
    """Write JSON with mode 0600, all or nothing."""
    write_private(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; ``None`` when there is none (absent or torn)."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
