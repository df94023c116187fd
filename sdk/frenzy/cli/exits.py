"""Exit codes: 0 ok, 1 error, 2 usage, then job outcomes and how the server could not be used."""

from enum import IntEnum

from frenzy_shared.domain.job import JobState
from frenzy_shared.errors import FrenzyError


class Exit(IntEnum):
    """What a script can tell from ``$?``."""

    OK = 0
    ERROR = 1
    USAGE = 2
    FAILED = 100
    NOT_FINISHED = 101
    NOT_FOUND = 102
    CANCELLED = 103
    INFEASIBLE = 104
    UNREACHABLE = 105  # or timed out
    INTERRUPTED = 130


_BY_CODE = {
    "not_found": Exit.NOT_FOUND,
    "no_feasible_plan": Exit.INFEASIBLE,
    "unreachable": Exit.UNREACHABLE,
    "unavailable": Exit.UNREACHABLE,
    "timed_out": Exit.UNREACHABLE,
}


def of_error(error: FrenzyError) -> Exit:
    """Return the exit code that an error stands for."""
    return _BY_CODE.get(error.code, Exit.ERROR)


def of_job(state: JobState, reason: str) -> Exit:
    """Return the exit code that a job's outcome stands for."""
    match state:
        case JobState.SUCCEEDED:
            return Exit.OK
        case JobState.CANCELLED:
            return Exit.CANCELLED
        case JobState.FAILED:
            return Exit.INFEASIBLE if reason == "NoFeasiblePlan" else Exit.FAILED
        case _:
            return Exit.NOT_FINISHED
