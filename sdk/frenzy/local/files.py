"""Small JSON files that are whole or absent, and private where they hold secrets."""

import json
from pathlib import Path
from typing import Any

from frenzy_shared.files import write_private


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
