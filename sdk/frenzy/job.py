"""A job in the caller's hands: its view, and what can be asked of it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from frenzy import operations, streams
from frenzy.exchange import Call, Retry
from frenzy.streams import Follower, LogEntry, LogGap
from frenzy.transport import AsyncTransport, Transport
from frenzy_shared.domain.job import TERMINAL, JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.envelope import CloudEvent
from frenzy_shared.messages.http import ExplainView, JobView, TimelineEntry


class _Handle:
    """What both kinds of handle know without I/O. ``view`` is as fresh as the last call."""

    def __init__(self, retry: Retry, view: JobView) -> None:
        self._retry = retry
        self.view = view

    @property
    def id(self) -> str:
        """Return the job's id."""
        return self.view.id

    @property
    def name(self) -> str:
        """Return the job's name."""
        return self.view.name

    @property
    def state(self) -> JobState:
        """Return the state that was last seen."""
        return self.view.state

    @property
    def done(self) -> bool:
        """Tell whether the state that was last seen is final."""
        return self.view.state in TERMINAL

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.name!r} {self.state}>"

    def _follow_logs(self, rank: int | None, attempt: int | None, tail: int | None) -> Follower:
        query = operations.log_query(rank, attempt, tail)
        path = f"{operations.job_path(self.id)}/logs"
        return Follower(call=Call(method="GET", path=path, query=query), retry=self._retry)

    def _follow_events(self) -> Follower:
        path = f"{operations.job_path(self.id)}/events"
        return Follower(call=Call(method="GET", path=path), retry=self._retry)


class Job(_Handle):
    """A job of a ``Client``."""

    def __init__(self, io: Transport, retry: Retry, view: JobView) -> None:
        super().__init__(retry, view)
        self._io = io

    def refresh(self) -> JobView:
        """Read the job again."""
        self.view = self._io.run(operations.get(self._retry, self.id))
        return self.view

    def wait(self, timeout_s: float | None = None) -> JobView:
        """Block until the job is over.

        Raises:
            TimedOut: ``timeout_s`` passed first.
        """
        self.view = self._io.run(operations.wait(self._retry, self.id, timeout_s=timeout_s))
        return self.view

    def cancel(self) -> JobView:
        """Cancel the job; a second cancel changes nothing.

        Raises:
            InvalidState: the job is already over otherwise.
        """
        self.view = self._io.run(operations.cancel(self._retry, self.id))
        return self.view

    def hold(self) -> JobView:
        """Keep the waiting job from starting until ``release``; a second hold changes nothing.

        Raises:
            InvalidState: the job no longer waits.
        """
        self.view = self._io.run(operations.hold(self._retry, self.id))
        return self.view

    def release(self) -> JobView:
        """Let the job that was held back start again; a second release changes nothing.

        Raises:
            InvalidState: the job no longer waits.
        """
        self.view = self._io.run(operations.release(self._retry, self.id))
        return self.view

    def logs(
        self,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> Iterator[str]:
        """Yield lines of text; with ``follow``, until the job is over, over broken connections."""
        if not follow:
            query = operations.log_query(rank, attempt, tail)
            yield from lines_of(self._io.run(operations.log_text(self._retry, self.id, query)))
            return
        for entry in self.log_entries(rank=rank, attempt=attempt, tail=tail):
            yield entry.text if isinstance(entry, LogEntry) else f"[gap: {entry.detail}]"

    def log_entries(
        self, *, rank: int | None = None, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[LogEntry | LogGap]:
        """Follow the log with attempt, rank, number and time of every line."""
        for event in self._io.follow(self._follow_logs(rank, attempt, tail)):
            if (entry := streams.log_of(event)) is not None:
                yield entry

    def events(self, *, follow: bool = True) -> Iterator[CloudEvent]:
        """Yield the job's events from its first; with ``follow``, until the job is over."""
        if not follow:
            for item in self._io.run(operations.job_json(self._retry, self.id, "events")):
                yield CloudEvent.model_validate(item, extra="ignore")
            return
        for event in self._io.follow(self._follow_events()):
            if (found := streams.cloud_event_of(event)) is not None:
                yield found

    def explain(self) -> ExplainView:
        """Ask why the job is where it is."""
        return self._io.run(operations.explain(self._retry, self.id))

    def timeline(self) -> tuple[TimelineEntry, ...]:
        """Return the job's transitions, oldest first."""
        return self._io.run(operations.timeline(self._retry, self.id))

    def plans(self) -> PlanSet:
        """Return the plans that were stored for the job; empty before it was planned."""
        return self._io.run(operations.job_plans(self._retry, self.id))

    def spec(self) -> Any:  # noqa: ANN401 - JSON
        """Return the specification as JSON."""
        return self._io.run(operations.job_json(self._retry, self.id, "spec"))

    def metrics(self) -> tuple[dict[str, Any], ...]:
        """Return the kept training metrics, oldest first; the keys are TrainingPoint's."""
        return self._io.run(operations.metrics(self._retry, self.id))


class AsyncJob(_Handle):
    """A job of an ``AsyncClient``: ``Job``'s methods, awaited."""

    def __init__(self, io: AsyncTransport, retry: Retry, view: JobView) -> None:
        super().__init__(retry, view)
        self._io = io

    async def refresh(self) -> JobView:
        """Read the job again."""
        self.view = await self._io.run(operations.get(self._retry, self.id))
        return self.view

    async def wait(self, timeout_s: float | None = None) -> JobView:
        """Wait until the job is over; see ``Job.wait``."""
        self.view = await self._io.run(operations.wait(self._retry, self.id, timeout_s=timeout_s))
        return self.view

    async def cancel(self) -> JobView:
        """Cancel the job; see ``Job.cancel``."""
        self.view = await self._io.run(operations.cancel(self._retry, self.id))
        return self.view

    async def hold(self) -> JobView:
        """Keep the waiting job from starting until ``release``; a second hold changes nothing.

        Raises:
            InvalidState: the job no longer waits.
        """
        self.view = await self._io.run(operations.hold(self._retry, self.id))
        return self.view

    async def release(self) -> JobView:
        """Let the job that was held back start again; a second release changes nothing.

        Raises:
            InvalidState: the job no longer waits.
        """
        self.view = await self._io.run(operations.release(self._retry, self.id))
        return self.view

    async def logs(
        self,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> AsyncIterator[str]:
        """Yield lines of text; see ``Job.logs``."""
        if not follow:
            query = operations.log_query(rank, attempt, tail)
            text = await self._io.run(operations.log_text(self._retry, self.id, query))
            for line in lines_of(text):
                yield line
            return
        async for entry in self.log_entries(rank=rank, attempt=attempt, tail=tail):
            yield entry.text if isinstance(entry, LogEntry) else f"[gap: {entry.detail}]"

    async def log_entries(
        self, *, rank: int | None = None, attempt: int | None = None, tail: int | None = None
    ) -> AsyncIterator[LogEntry | LogGap]:
        """Follow the log with attempt, rank, number and time of every line."""
        async for event in self._io.follow(self._follow_logs(rank, attempt, tail)):
            if (entry := streams.log_of(event)) is not None:
                yield entry

    async def events(self, *, follow: bool = True) -> AsyncIterator[CloudEvent]:
        """Yield the job's events; see ``Job.events``."""
        if not follow:
            for item in await self._io.run(operations.job_json(self._retry, self.id, "events")):
                yield CloudEvent.model_validate(item, extra="ignore")
            return
        async for event in self._io.follow(self._follow_events()):
            if (found := streams.cloud_event_of(event)) is not None:
                yield found

    async def explain(self) -> ExplainView:
        """Ask why the job is where it is."""
        return await self._io.run(operations.explain(self._retry, self.id))

    async def timeline(self) -> tuple[TimelineEntry, ...]:
        """Return the job's transitions, oldest first."""
        return await self._io.run(operations.timeline(self._retry, self.id))

    async def plans(self) -> PlanSet:
        """Return the plans that were stored for the job; empty before it was planned."""
        return await self._io.run(operations.job_plans(self._retry, self.id))

    async def spec(self) -> Any:  # noqa: ANN401 - JSON
        """Return the specification as JSON."""
        return await self._io.run(operations.job_json(self._retry, self.id, "spec"))

    async def metrics(self) -> tuple[dict[str, Any], ...]:
        """Return the kept training metrics, oldest first; the keys are TrainingPoint's."""
        return await self._io.run(operations.metrics(self._retry, self.id))


def lines_of(text: str) -> list[str]:
    """Split a log at LF only: its lines may hold any other separator."""
    return text.removesuffix("\n").split("\n") if text else []
