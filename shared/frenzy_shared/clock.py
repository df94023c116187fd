"""Time and identity as arguments, so that decisions stay pure and tests never sleep."""

import secrets
import time
from typing import Final, Protocol

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """Tells wall time for records and monotonic time for deadlines."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that counts suspension and never jumps (CLOCK_BOOTTIME)."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return CLOCK_BOOTTIME in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class IdSource(Protocol):
    """Makes identifiers that are unique and safe in subjects, keys and paths."""

    def new_id(self) -> str:
        """Return a fresh identifier matching ``[0-9a-z]{26}``."""
        ...


class RandomIds:
    """Time-ordered random identifiers (ULID layout, lower-case Crockford alphabet)."""

    def new_id(self) -> str:
        """Return 10 characters of milliseconds followed by 16 of randomness."""
        value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))
