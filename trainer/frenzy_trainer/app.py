"""Wire one rank together: environment in, exit code out, every failure reported.

Nothing here imports torch: what is wrong with the plan or the data is said within a second.
"""

import os
import sys
import traceback
from collections.abc import Mapping

from frenzy_shared.errors import FrenzyError, Misconfigured
from frenzy_trainer.console import complain
from frenzy_trainer.data import load_dataset
from frenzy_trainer.environment import RankEnvironment, read_environment
from frenzy_trainer.errors import STOPPED_EXIT_CODE, Abandoned
from frenzy_trainer.failures import classify, describe
from frenzy_trainer.reports import ReportFile
from frenzy_trainer.run import read_run


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Run the rank that ``environ`` describes and return its exit code.

    0: trained to the end. 143: saved after SIGTERM, or never began for it. 1: failed, and the
    report says why.
    """
    try:
        environment = read_environment(environ)
        report = ReportFile(environment.report_file)
    except (Misconfigured, OSError) as error:
        complain(f"error: {error}")
        return 1
    with report:
        try:
            return _run(environment, report)
        except Abandoned:
            code = STOPPED_EXIT_CODE
        except BaseException as error:  # noqa: BLE001 - whatever it is, the agent must learn of it
            _report_failure(error, environment.rank, report)
            code = 1
    # No clean-up of the process group: its other ranks may be gone and it would wait for them.
    os._exit(code)


def _run(environment: RankEnvironment, report: ReportFile) -> int:
    run = read_run(environment)
    dataset = load_dataset(
        environment.data,
        tokenizer=environment.tokenizer,
        vocabulary=int(run.model_config["vocab_size"]),
        sequence_length=run.sequence_length,
        seed=run.spec.seed,
    )
    from frenzy_trainer.session import StopFlag, train_rank  # noqa: PLC0415 - imports torch

    stop = StopFlag()
    stop.watch()
    return train_rank(run, dataset, report, stop)


def _report_failure(error: BaseException, rank: int, report: ReportFile) -> None:
    message = describe(error, rank)
    if not isinstance(error, FrenzyError):
        traceback.print_exception(error)
    complain(f"error: {message}")
    sys.stdout.flush()
    report.failure(classify(error), message)
