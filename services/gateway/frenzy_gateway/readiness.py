"""Readiness and back-pressure: whether jobs are accepted, and whether they get on."""

from dataclasses import dataclass

from frenzy_shared.bus.port import Bus
from frenzy_shared.errors import Misconfigured, Unavailable
from frenzy_shared.messages.http import SAFE_MODE, CheckView, ReadinessView
from frenzy_shared.state.port import StateStore
from frenzy_shared.state.records import in_safe_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Looks at the store and the bus. Only the store is needed to accept a job."""

    state: StateStore
    bus: Bus
    max_outbox_lag: int
    max_memory_ratio: float

    async def check(self, *, stopping: bool) -> ReadinessView:
        """Tell what works; never raises ``Unavailable``."""
        health = await self.state.health()
        checks = (
            CheckView(name="store", ok=health.reachable, detail=health.detail),
            await self._bus(),
            CheckView(
                name="outbox",
                ok=health.outbox_lag <= self.max_outbox_lag,
                detail=f"{health.outbox_lag} events wait to be published",
            ),
            CheckView(
                name=SAFE_MODE,
                ok=not health.safe_mode,
                detail=health.safe_mode and f"nothing starts or changes: {health.safe_mode}",
            ),
        )
        if stopping:
            status = "stopping"
        elif not health.reachable:
            status = "unavailable"
        else:
            status = "ready" if all(check.ok for check in checks) else "degraded"
        return ReadinessView(status=status, checks=checks)

    async def require_room(self) -> None:
        """Raise ``Unavailable`` while the store cannot safely take more work."""
        health = await self.state.health()
        if not health.reachable:
            raise Unavailable(f"the state store is unreachable: {health.detail}")
        if health.safe_mode:
            raise in_safe_mode(health.safe_mode)
        if health.outbox_lag > self.max_outbox_lag:
            raise Unavailable(f"{health.outbox_lag} events wait to be published; try again later")
        if health.memory_used_ratio > self.max_memory_ratio:
            raise Unavailable(f"the state store is {health.memory_used_ratio:.0%} full")

    async def _bus(self) -> CheckView:
        if not self.bus.connected:
            return CheckView(name="bus", ok=False, detail="not connected")
        try:
            await self.bus.verify_streams()
        except (Misconfigured, Unavailable) as error:
            return CheckView(name="bus", ok=False, detail=error.message)
        return CheckView(name="bus", ok=True)
