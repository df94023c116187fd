"""Settings of the scheduler, from FRENZY_* environment variables."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from frenzy_scheduler.core.policies import POLICIES, SIMULATED
from frenzy_shared.settings import Seconds, TimingSettings


class SchedulerSettings(TimingSettings):
    """The policy, and how often the loops look.

    A lease that is not renewed ends after ``lease_ttl_s``; others try for it every
    ``lease_renew_s``: a take-over needs at most the sum of the two.
    """

    policy: Literal["has", "fifo", "srtf", "backfill"] = "has"
    """How queued jobs are chosen and placed."""
    lease_ttl_s: Seconds = 4.0
    """How long a silent leader keeps the lease."""
    lease_renew_s: Seconds = 0.8
    """Between two renewals."""
    rescan_s: Seconds = 5.0
    """Between two looks at everything, whatever the events said."""
    timer_poll_s: Seconds = 0.5
    """Between two looks at timers."""
    liveness_poll_s: Seconds = 1.0
    """Between two looks at silent nodes."""
    replan_timeout_s: Seconds = 30.0
    """For MARP to plan again."""
    ack_wait_s: Seconds = 4.0
    """Evidence that a killed replica had in hand comes again after this."""
    evidence_wait_s: Seconds = 180.0
    """For how ranks of a clean node ended; far above ack_wait_s."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 32
    """Store calls in flight at once."""

    @field_validator("policy", mode="before")
    @classmethod
    def _not_preemptive(cls, value: object) -> object:
        if value in {policy.name for policy in SIMULATED}:
            raise ValueError(
                f"{value} stops running jobs, which this release does in `frenzy simulate` only; "
                f"use one of {', '.join(policy.name for policy in POLICIES)}"
            )
        return value
