"""The child that runs one trace: ``python -m frenzy_trainer.trace.worker``, a request on stdin.

Its limits are the kernel's: memory that it asks for beyond ``--memory`` is refused, and it is
killed after ``--seconds`` of CPU time even if its supervisor is gone. What it runs may print, so
the answer goes to a file.
"""

import argparse
import os
import resource
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from frenzy_shared.errors import FrenzyError
from frenzy_shared.messages.trace import TraceAnswer, TraceRequest

LIBRARIES: Final = ("torch", "transformers", "deepspeed")


def versions() -> dict[str, str]:
    """Return the versions of what a trace runs."""
    return {name: version(name) for name in LIBRARIES}


def main(arguments: Sequence[str]) -> int:
    """Trace what stdin asks for and write the answer to ``--answer``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    chosen = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_CPU, (chosen.seconds, chosen.seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (chosen.memory, chosen.memory))
    request = TraceRequest.model_validate_json(sys.stdin.buffer.read())
    chosen.answer.write_bytes(_answer(request).encode())
    return 0


def _answer(request: TraceRequest) -> TraceAnswer:
    started = time.monotonic()
    try:
        answer = _traced(request)
    except FrenzyError as error:
        return TraceAnswer(
            error_code=error.code, error=error.message, suggestions=tuple(error.suggestions)
        )
    except MemoryError:
        return TraceAnswer(
            error_code="trace_limit", error="the trace took more memory than its limit"
        )
    except Exception as error:  # noqa: BLE001 - the model's own code, which may raise anything
        text = f"the model cannot be traced: {type(error).__name__}: {str(error)[:500]}"
        return TraceAnswer(error_code="trace_failed", error=text)
    return answer.model_copy(
        update={"versions": versions(), "seconds": round(time.monotonic() - started, 2)}
    )


def _traced(request: TraceRequest) -> TraceAnswer:
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    from frenzy_trainer.trace.models import ModelSource  # noqa: PLC0415 - imports torch

    source = ModelSource(request)
    if request.engine is None:
        from frenzy_trainer.trace.layers import trace_layers  # noqa: PLC0415 - imports torch

        return TraceAnswer(layers=trace_layers(source))
    from frenzy_trainer.trace.engine import trace_engine  # noqa: PLC0415 - imports torch

    return TraceAnswer(engine=trace_engine(source, request.engine))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the fake process group has nobody to say goodbye to
