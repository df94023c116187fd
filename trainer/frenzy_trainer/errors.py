"""What can end a rank, each with the reason that the scheduler decides by."""

import signal
from typing import ClassVar, Final

from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import FrenzyError

# What a rank ends with that did as SIGTERM asked.
STOPPED_EXIT_CODE: Final = 128 + signal.SIGTERM


class RankFailure(FrenzyError):
    """Root of the failures that the trainer itself recognises."""

    code = "rank_failure"
    reason: ClassVar[StopReason] = StopReason.USER_CODE_ERROR


class DataError(RankFailure):
    """The training data or the tokenizer is missing, unreadable, not text, or too short."""

    code = "data_error"
    reason = StopReason.DATA_ERROR


class CheckpointError(RankFailure):
    """A checkpoint cannot be written, read, or used under this plan."""

    code = "checkpoint_error"
    reason = StopReason.CHECKPOINT_ERROR


class TrainingDiverged(RankFailure):
    """The loss is no longer a finite number."""

    code = "training_diverged"
    reason = StopReason.USER_CODE_ERROR


class Abandoned(Exception):
    """SIGTERM came to a rank that waited for its release: this attempt will not train."""
