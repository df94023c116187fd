"""``python -m frenzy_trainer.trace``: one request in, one answer out."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from frenzy_shared.errors import FrenzyError, InvalidSpec
from frenzy_shared.messages.trace import MAX_DOCUMENT_BYTES, TraceAnswer, TraceRequest
from frenzy_shared.units import GIB
from frenzy_trainer.trace.cache import default_folder
from frenzy_trainer.trace.supervisor import Limits, answer


def main(arguments: Sequence[str]) -> int:
    """Answer a request on stdout; 0 when there is a result, 1 when the answer says why not."""
    parser = argparse.ArgumentParser(
        prog="python -m frenzy_trainer.trace",
        description="Measure a training run's memory with tensors that have no contents.",
    )
    parser.add_argument("--request", type=Path, help="read it from a file instead of stdin")
    parser.add_argument("--seconds", type=int, default=120, help="limit, wall clock")
    parser.add_argument("--memory", type=int, default=8 * GIB, help="limit in bytes")
    parser.add_argument("--cache", type=Path, help="folder of kept answers")
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep answers")
    parser.add_argument(
        "--allow-code", action="store_true", help="run the factory that a request names"
    )
    chosen = parser.parse_args(arguments)
    folder = None if chosen.no_cache else chosen.cache or default_folder()
    try:
        request = _read(chosen.request)
        limits = Limits(seconds=chosen.seconds, memory_bytes=chosen.memory)
        found = answer(request, limits, folder, allow_code=chosen.allow_code)
    except FrenzyError as error:
        found = TraceAnswer(
            error_code=error.code, error=error.message, suggestions=tuple(error.suggestions)
        )
    sys.stdout.write(found.model_dump_json(indent=2) + "\n")
    return 1 if found.error else 0


def _read(path: Path | None) -> TraceRequest:
    try:
        if path is None:
            text = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with path.open("rb") as file:
                text = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise InvalidSpec(f"cannot read {path}: {error.strerror}") from None
    if len(text) > MAX_DOCUMENT_BYTES:
        raise InvalidSpec("the request is over 1 MiB")
    try:
        return TraceRequest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "request"
        raise InvalidSpec(f"{where}: {first['msg']}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
