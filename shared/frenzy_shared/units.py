"""Convert between the integers Frenzy computes with and the texts people read."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_SUFFIXES: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024**4,
}
_DURATIONS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def format_bytes(count: int) -> str:
    """Render ``count`` bytes with a binary unit and three significant digits."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            digits = 0 if unit == "B" or abs(size) >= 100 else 1 if abs(size) >= 10 else 2
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: the last unit always returns")


def parse_bytes(text: str) -> int:
    """Parse a size such as ``24GB`` or ``1.5 GiB`` into bytes.

    Raises:
        ValueError: the text is not a positive number followed by a known unit.
    """
    number, unit = _split_unit(text)
    factor = _SUFFIXES.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} is not a size; write for example 24GB or 24GiB")
    return int(_positive(number, text) * factor)


def parse_duration_s(text: str) -> float:
    """Parse a duration such as ``90s``, ``30m``, ``12h`` or ``7d`` into seconds.

    Raises:
        ValueError: the text is not a positive number followed by s, m, h or d.
    """
    number, unit = _split_unit(text)
    factor = _DURATIONS_S.get(unit)
    if factor is None:
        raise ValueError(f"{text!r} is not a duration; write for example 30m, 12h or 7d")
    return _positive(number, text) * factor


def format_duration(seconds: float) -> str:
    """Render seconds as people say them: 42 s, 12 min, 3.5 h, 2.1 d."""
    for limit, unit_s, unit in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit_s:.{0 if seconds >= 10 * unit_s else 1}f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def _split_unit(text: str) -> tuple[str, str]:
    stripped = text.strip()
    end = len(stripped)
    while end and stripped[end - 1].isalpha():
        end -= 1
    return stripped[:end].strip(), stripped[end:]


def _positive(number: str, text: str) -> float:
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"{text!r} does not start with a number") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} must be a positive, finite amount")
    return value
