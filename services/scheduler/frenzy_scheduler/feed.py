"""Evidence from the bus. It waits there while the store is in SAFE MODE, unread and uncounted."""

from dataclasses import dataclass

from frenzy_shared.bus.port import Bus, Handler, Subscription
from frenzy_shared.messages import subjects
from frenzy_shared.state.keeper import Keeper

_DURABLE = "controller"


@dataclass(kw_only=True)
class EvidenceFeed:
    """One replica's share of the evidence, while it may be acted upon."""

    keeper: Keeper
    bus: Bus
    handler: Handler
    _subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to receive."""
        self._subscription = await self.bus.consume(
            subjects.EVIDENCE_STREAM, _DURABLE, self.handler, filter_subject=subjects.EVIDENCE
        )

    async def look(self) -> None:
        """Rest or go on, as the store's SAFE MODE calls for.

        Raises:
            Unavailable: the store is; everything stays as it is.
        """
        safe = bool((await self.keeper.history()).safe_mode)
        if safe:
            await self.stop()
        elif self._subscription is None:
            await self.start()

    async def stop(self) -> None:
        """Receive nothing more, after the running handler."""
        if self._subscription is not None:
            await self._subscription.stop()
            self._subscription = None
