"""Settings of MARP, from FRENZY_* environment variables."""

from frenzy_shared.settings import Seconds, ServiceSettings


class MarpSettings(ServiceSettings):
    """How often MARP looks for work that no event told it about."""

    refresh_s: Seconds = 2.0  # stale plans of waiting jobs, jobs whose event was missed
