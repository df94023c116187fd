"""Settings of the scheduler, from FRENZY_* environment variables."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from frenzy_scheduler.core.decisions import Strategy
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_shared.settings import Seconds, TimingSettings


class SchedulerSettings(TimingSettings):
    """The policy, and how often the loops look.

    A lease that is not renewed ends after ``lease_ttl_s``; others try for it every
    ``lease_renew_s``: a take-over needs at most the sum of the two.
    """

    policy: Literal["frenzy", "has", "fifo", "srtf", "backfill", "srtf-preemptive", "las"] = (
        "frenzy"
    )
    """How jobs are chosen and placed; `frenzy`, `srtf-preemptive` and `las` also stop, move and
    resize running jobs.
    """
    restart_prior_s: Seconds = 30.0
    """What stopping and restarting a job costs, until it has been measured."""
    min_run_factor: Annotated[float, Field(ge=0, le=1000)] = 20.0
    """Under `frenzy` a job keeps its devices for so many times the price of its restart."""
    make_before_break: bool = True
    """A job that is moved to idle devices gets its next attempt ready there while it trains."""
    warm_timeout_s: Seconds = 300.0
    """For the next attempt to be ready; then the job stays where it is."""
    move_backoff_s: Seconds = 600.0
    """How long a job is not moved again whose next attempt had to be given up."""
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
    fair_share_half_life_s: Annotated[float, Field(ge=0)] = 86_400.0
    """After this, what a project has had counts half; 0: no fair share."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 32
    """Store calls in flight at once."""
    record_cycles: Path | None = None
    """Folder in which the leader records its cycles for `frenzy admin replay`; empty: none."""
    record_keep: Annotated[int, Field(ge=1, le=100_000)] = 100
    """How many recorded cycles stay in `record_cycles`; the oldest go first."""

    retention_s: Annotated[float, Field(ge=60)] = 30 * 86_400.0
    """How long finished jobs are kept; then they are archived and forgotten."""
    retention_jobs: Annotated[int, Field(ge=0)] = 100_000
    """How many finished jobs are kept at most; the oldest go first."""
    retention_archive: Path | None = None
    """Folder of the archive, a JSON line for each forgotten job; empty: `<data_dir>/archive`."""
    retention_poll_s: Seconds = 60.0
    """Between two looks at what may be forgotten."""
    strikes: Annotated[int, Field(ge=0, le=100)] = 3
    """Launches that a node may refuse within `strikes_window_s` before it is drained; 0: any."""
    strikes_window_s: Seconds = 3600.0
    """How long a refused launch counts against its node."""

    def strategy(self) -> Strategy:
        """Return the policy, its constants as these settings say."""
        found = next(one for one in (*POLICIES, *PREEMPTIVE) if one.name == self.policy)
        if isinstance(found, Frenzy):
            return replace(found, min_run_factor=self.min_run_factor)
        return found

    @property
    def longest_pause_s(self) -> float:
        """Return the longest that a job may be told to wait before its next attempt."""
        return max(self.backoff_max_s, self.fence_after_s + self.fence_margin_s)

    @property
    def archive(self) -> Path:
        """Return the folder of the archive."""
        return self.retention_archive or self.data_dir / "archive"
