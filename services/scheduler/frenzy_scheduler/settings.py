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
    lease_ttl_s: Seconds = 4.0
    lease_renew_s: Seconds = 0.8
    rescan_s: Seconds = 5.0
    timer_poll_s: Seconds = 0.5
    liveness_poll_s: Seconds = 1.0
    replan_timeout_s: Seconds = 30.0
    ack_wait_s: Seconds = 4.0  # evidence that a killed replica had in hand comes again after this
    evidence_wait_s: Seconds = 180.0  # for how ranks of a clean node ended; far above ack_wait_s
    batch: Annotated[int, Field(ge=1, le=1024)] = 32  # store calls in flight at once

    @field_validator("policy", mode="before")
    @classmethod
    def _not_preemptive(cls, value: object) -> object:
        if value in {policy.name for policy in SIMULATED}:
            raise ValueError(
                f"{value} stops running jobs, which this release does in `frenzy simulate` only; "
                f"use one of {', '.join(policy.name for policy in POLICIES)}"
            )
        return value
