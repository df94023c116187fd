"""Settings of MARP, from FRENZY_* environment variables."""

from pathlib import Path

from frenzy_shared.settings import Seconds, ServiceSettings


class MarpSettings(ServiceSettings):
    """How often MARP looks for work that no event told it about."""

    catch_up_s: Seconds = 1.0
    """Between two looks for jobs whose events are late or were lost."""
    refresh_s: Seconds = 2.0
    """Between two looks for stale plans of waiting jobs."""
    catalog: Path | None = None
    """File of GPUs of your own; docs/howto/estimate-memory.md has its form."""
