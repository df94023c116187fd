"""Keys that seal secrets, and a value that can be searched for."""

from pathlib import Path

KEYS = ("11" * 32, "22" * 32)
VALUE = "s3cr3t-" + "zq7" * 8  # in no other text


def key_file(folder: Path, *keys: str) -> Path:
    """A file of keys, the first key alone if none is given."""
    path = folder / "secrets.keys"
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}\n" for key in keys or KEYS[:1]))
    return path
