"""``python -m frenzy_trainer.launch script.py args``: run a user's script as one rank.

The script runs unchanged, as ``__main__``, as under torchrun. On an emulated device its tensors
are accounted for and its optimizer steps are paced; when it fails, the report says why.
"""

import os
import runpy
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured
from frenzy_trainer.api import peaks
from frenzy_trainer.console import complain
from frenzy_trainer.environment import Emulation, read_emulation
from frenzy_trainer.failures import classify, describe
from frenzy_trainer.reports import ReportFile, read_steps

_STOPPED = 143  # 128 + SIGTERM: the script saved and left as it was asked to


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run ``argv[0]`` with the other arguments and return its exit code.

    An exception becomes exit code 1; a code given to ``sys.exit`` is kept.
    """
    if not argv:
        complain("usage: python -m frenzy_trainer.launch script.py [argument ...]")
        return 2
    try:
        emulation = read_emulation(environ)
        rank = int(environ.get("RANK", "0"))
    except (Misconfigured, ValueError) as error:
        complain(f"error: {error}")
        return 1
    path = environ.get("FRENZY_REPORT_FILE")
    with ExitStack() as stack:
        report = stack.enter_context(ReportFile(Path(path))) if path else None
        stack.enter_context(_device(emulation, rank))
        code = _run(argv, rank, report)
        if report is not None and path:
            report.summary(**peaks(), **_totals(Path(path)))
    return code


def _device(emulation: Emulation | None, rank: int) -> AbstractContextManager[object]:
    if emulation is None:
        return nullcontext()
    from frenzy_trainer.emulation import emulated_device  # noqa: PLC0415 - imports torch

    return emulated_device(emulation, rank)


def _run(argv: Sequence[str], rank: int, report: ReportFile | None) -> int:
    script = argv[0]
    sys.argv = list(argv)
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        return _exit_code(leaving, rank, report)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        traceback.print_exception(error)
        if report is not None:
            report.failure(classify(error), describe(error, rank))
        return 1
    return 0


def _exit_code(leaving: SystemExit, rank: int, report: ReportFile | None) -> int:
    """Do what the interpreter does with ``sys.exit(code)``, and report a code that is not 0."""
    code = leaving.code
    if code is None:
        return 0
    if not isinstance(code, int):
        complain(str(code))
        code = 1
    if code not in {0, _STOPPED} and report is not None:
        report.failure(
            StopReason.USER_CODE_ERROR, f"rank {rank}: the script exited with code {code}"
        )
    return code


def _totals(path: Path) -> dict[str, float | None]:
    """Sum up the steps that the script itself reported."""
    steps = read_steps(path)
    losses = [step["loss"] for step in steps if "loss" in step]
    rates = [step["tokens_per_second"] for step in steps if "tokens_per_second" in step]
    return {
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "tokens_per_second": sum(rates) / len(rates) if rates else None,
        "last_step": steps[-1]["step"] if steps else None,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
