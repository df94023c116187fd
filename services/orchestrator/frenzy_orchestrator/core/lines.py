"""Cut a rank's output into lines: progress bars collapsed, huge lines split, bad bytes replaced."""

from dataclasses import dataclass
from typing import Final

LINE_LIMIT_BYTES: Final = 16 * 1024
_CONTINUATION: Final = 0b1000_0000  # the top bits of a UTF-8 continuation byte are 10


@dataclass(frozen=True, slots=True)
class Cut:
    """Whole lines of a chunk and how many of its bytes they (and dropped progress) take."""

    texts: tuple[str, ...]
    consumed: int


def cut(chunk: bytes, *, at_end: bool, max_lines: int) -> Cut:
    """Return up to ``max_lines`` whole lines from the start of ``chunk``.

    ``chunk`` must be longer than ``LINE_LIMIT_BYTES`` or reach the end of what was written.
    With ``at_end`` the unfinished last line counts as whole: its writer is gone.
    """
    texts: list[str] = []
    position = 0
    while position < len(chunk) and len(texts) < max_lines:
        newline = chunk.find(b"\n", position)
        end = newline if newline >= 0 else len(chunk)
        line = chunk[position:end]
        if len(line) > LINE_LIMIT_BYTES:
            piece = _longest_piece(line)
            position += len(piece)
            texts.append(_decode(piece))
            continue
        if newline < 0 and not at_end:
            break
        texts.append(_decode(line))
        position = end + 1
    return Cut(tuple(texts), min(position, len(chunk)))


def _longest_piece(line: bytes) -> bytes:
    """Return the first limit's worth of a line, not ending inside a UTF-8 character."""
    end = LINE_LIMIT_BYTES
    while end > LINE_LIMIT_BYTES - 4 and line[end] & 0b1100_0000 == _CONTINUATION:
        end -= 1
    return line[:end]


def _decode(line: bytes) -> str:
    """Keep what a terminal would show at the end: the text after the last carriage return."""
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    return shown.decode("utf-8", errors="replace")
