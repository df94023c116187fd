"""Keys that seal secrets, a value that can be searched for, and where it turns up."""

import base64
from collections.abc import Iterable
from pathlib import Path

KEYS = ("11" * 32, "22" * 32)
VALUE = "s3cr3t-" + "zq7" * 8  # in no other text
SHOW_HASH = """
import hashlib, os, time
print(hashlib.sha256(os.environ["HF_TOKEN"].encode()).hexdigest(), flush=True)
while not os.path.exists("finish"):
    time.sleep(0.02)
"""


def key_file(folder: Path, *keys: str) -> Path:
    """A file of keys, the first key alone if none is given."""
    path = folder / "secrets.keys"
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}\n" for key in keys or KEYS[:1]))
    return path


def files_with(value: str, folder: Path) -> list[Path]:
    """The files below a folder that hold a value, as it is, in hex or in base64."""
    forms = _forms(value)
    held = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in held if any(form in path.read_bytes() for form in forms)]


def payloads_with(value: str, payloads: Iterable[bytes]) -> list[bytes]:
    """The messages that hold a value."""
    forms = _forms(value)
    return [payload for payload in payloads if any(form in payload for form in forms)]


def commands_with(value: str) -> list[Path]:
    """The processes of this machine that have a value in their arguments."""
    return _processes_with(value, "cmdline")


def environments_with(value: str) -> list[Path]:
    """The processes of this machine that have a value in their environments."""
    return _processes_with(value, "environ")


def _processes_with(value: str, what: str) -> list[Path]:
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{what}"):
        try:
            held = path.read_bytes()
        except OSError:  # it is gone
            continue
        if value.encode() in held:
            found.append(path.parent)
    return found


def _forms(value: str) -> tuple[bytes, ...]:
    data = value.encode()
    return data, data.hex().encode(), base64.b64encode(data).rstrip(b"=")[:-1]
