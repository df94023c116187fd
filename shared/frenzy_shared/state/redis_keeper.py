"""The keeper's part of the store on a server: calls of ``keeper.lua``."""

import secrets
from collections.abc import Sequence
from typing import Any

from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.messages.codec import from_json
from frenzy_shared.state.keeper import History, Leave, Restore
from frenzy_shared.state.port import Result
from frenzy_shared.state.records import call_result, dumps, loads
from frenzy_shared.state.requests import leave_request, restore_request


class RedisKeeper:
    """Mixed into ``RedisStore``, which knows how to call the server."""

    async def _call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        raise NotImplementedError

    async def oldest_finished(self, limit: int) -> tuple[JobRecord, ...]:
        """Read the jobs that finished first."""
        stored = await self._call("oldest_finished", limit)
        return tuple(from_json(JobRecord, loads(text)) for text in stored)

    async def forget(self, job: JobId, *, version: int, timers: Sequence[str] = ()) -> Result:
        """Remove a finished job."""
        op = f"forget:{job}:{version}:{secrets.token_hex(8)}"
        return call_result(await self._call("forget", op, job, version, dumps(list(timers))))

    async def gone_epoch(self) -> int:
        """Return the highest epoch of all forgotten nodes."""
        return int(await self._call("gone_epoch"))

    async def history(self) -> History:
        """Return where the store is in its history."""
        asked = (secrets.token_hex(8), "decisions")
        gen, posted, why, decisions = await self._call("history", *asked)
        return History(gen=gen, posted=int(posted), safe_mode=why, decisions=int(decisions))

    async def enter_safe_mode(self, why: str) -> None:
        """Refuse every change from now on."""
        await self._call("enter_safe_mode", why)

    async def restore(self, op: str, restore: Restore) -> Result:
        """Write records as they were."""
        return call_result(await self._call("restore", op, restore_request(restore)))

    async def leave_safe_mode(self, op: str, leave: Leave) -> Result:
        """Replace all owners, set timers, and take changes again."""
        return call_result(await self._call("leave_safe_mode", op, leave_request(leave)))
