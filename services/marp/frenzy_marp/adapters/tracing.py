"""Ask the trainer's tracer, which is another process: this package never imports torch.

The tracer keeps its own limits; this side waits a little longer and then gives up on it.
"""

import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from frenzy_shared.errors import FrenzyError
from frenzy_shared.installing import install
from frenzy_shared.messages.trace import EngineTrace, LayersTrace, TraceAnswer, TraceRequest
from frenzy_shared.units import GIB

_GRACE_S: Final = 15  # to start, and to stop the trace itself


class TraceFailed(FrenzyError):
    """There is no trace: the model cannot be built, DeepSpeed refuses, or a limit was reached."""

    code = "trace_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracer:
    """Runs ``python -m frenzy_trainer.trace`` with these limits.

    ``allow_code``: run the factory that a request names. A service never sets it: what it gets
    to trace was written by others.
    """

    seconds: int = 120
    memory_bytes: int = 8 * GIB
    allow_code: bool = False
    command: tuple[str, ...] = (sys.executable, "-m", "frenzy_trainer.trace")

    def engine(self, request: TraceRequest) -> EngineTrace:
        """Return what DeepSpeed's engine took.

        Raises:
            TraceFailed: there is no answer, or it says why there is no result.
        """
        answer = self._answer(request)
        if answer.engine is None:
            raise TraceFailed(answer.error or "no result", suggestions=answer.suggestions)
        return answer.engine

    def layers(self, request: TraceRequest) -> LayersTrace:
        """Return what one layer and the ends of a model hold; ``request`` names no engine.

        Raises:
            TraceFailed: as ``engine``.
        """
        answer = self._answer(request)
        if answer.layers is None:
            raise TraceFailed(answer.error or "no result", suggestions=answer.suggestions)
        return answer.layers

    def _answer(self, request: TraceRequest) -> TraceAnswer:
        limits = ("--seconds", str(self.seconds), "--memory", str(self.memory_bytes))
        code = ("--allow-code",) if self.allow_code else ()
        try:
            done = subprocess.run(
                [*self.command, *limits, *code],
                input=request.encode(),
                capture_output=True,
                timeout=self.seconds + _GRACE_S,
                check=False,
            )
            return TraceAnswer.decode(done.stdout)
        except subprocess.TimeoutExpired:
            raise TraceFailed(f"the tracer does not answer after {self.seconds} s") from None
        except OSError as error:
            raise TraceFailed(f"the tracer cannot be started: {error.strerror}") from None
        except ValidationError:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise TraceFailed(
                f"the tracer died: {said[-1][:300] if said else f'exit code {done.returncode}'}",
                suggestions=[f"it needs torch and DeepSpeed; {install('node')}"],
            ) from None
