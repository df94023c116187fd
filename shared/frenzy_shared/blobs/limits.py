"""What a work folder or data may hold, as a bundle or copied on a node."""

from typing import Final

MAX_BYTES: Final = 2 * 1024**3
MAX_ENTRIES: Final = 20_000
MAX_DEPTH: Final = 20
EXCLUDED: Final = frozenset({".git", "__pycache__", ".venv"})  # left out
