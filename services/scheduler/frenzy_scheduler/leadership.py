"""Whether this replica is the one that schedules: the lease ``control``."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from frenzy_scheduler.safemode import SafeMode
from frenzy_shared.clock import Clock
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

LEASE: Final = "control"


@dataclass(kw_only=True)
class Leadership:
    """The lease as this replica knows it, by its own monotonic clock.

    It saves work and gives one view of which nodes live. Correctness rests on versions, tokens
    and epochs, and every change made under the lease is checked against it by the store.
    """

    store: StateStore
    clock: Clock
    holder: str
    ttl_s: float
    on_gained: Callable[[], None]
    safe_mode: SafeMode
    _until: float = field(init=False, default=0.0)

    @property
    def held(self) -> bool:
        """Tell whether the lease is surely still ours."""
        return self.clock.monotonic() < self._until

    @property
    def proof(self) -> tuple[str, str]:
        """Return what a change shows to the store."""
        return (LEASE, self.holder)

    async def renew(self) -> None:
        """Take or renew the lease; counted from before the call, so never for too long.

        Nobody leads who has not judged the store's history. A lease that ended is not renewed but
        taken anew, so that a store which was replaced meanwhile is judged as a new one.

        Raises:
            Unavailable: the store is, or nothing can be judged for now.
        """
        asked, held = self.clock.monotonic(), self.held
        if await self.store.acquire_lease(LEASE, self.holder, self.ttl_s, renew=held):
            await self.safe_mode.look(gained=not held)
            self._until = asked + self.ttl_s
            if not held:
                log.info("holding lease %s", LEASE, extra={"holder": self.holder})
                self.on_gained()
        else:
            self.lose()

    def lose(self) -> None:
        """Note that somebody else holds the lease."""
        if self._until:
            log.info("lost lease %s", LEASE, extra={"holder": self.holder})
        self._until = 0.0

    async def resign(self) -> None:
        """Give the lease up, so that another replica need not wait for it to end."""
        if self.held:
            self._until = 0.0
            await self.store.release_lease(LEASE, self.holder)
