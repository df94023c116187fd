"""The store on a Redis-protocol server (Valkey): the only module that talks to it."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

from frenzy_shared.domain.cluster import ClusterSnapshot, NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId, ProjectName
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.domain.project import Project
from frenzy_shared.errors import (
    FrenzyError,
    Misconfigured,
    StorageFull,
    Unavailable,
)
from frenzy_shared.messages.codec import from_json
from frenzy_shared.state import rules, server
from frenzy_shared.state.port import (
    Change,
    DueTimer,
    JobPage,
    Json,
    NodeForgetting,
    NodeRegistration,
    OutboxEntry,
    Result,
    RunGroup,
    StoreHealth,
    StoreUnreachable,
    Submission,
)
from frenzy_shared.state.records import (
    call_result,
    carries,
    dumps,
    loads,
    outbox_entry,
    page_limit,
    page_start,
    token_before,
)
from frenzy_shared.state.redis_decisions import RedisDecisions
from frenzy_shared.state.redis_keeper import RedisKeeper
from frenzy_shared.state.redis_secrets import RedisSecrets
from frenzy_shared.state.requests import (
    apply_request,
    forget_request,
    register_request,
    submit_request,
)

log = logging.getLogger(__name__)

_P: Final = "{frenzy}:"
_OUTBOX: Final = f"{_P}outbox"
_OUTBOX_STATE: Final = f"{_P}outbox:state"
_FETCH: Final = 200  # records read in one call: the server does nothing else meanwhile
_LONGEST_WAIT_S: Final = 20.0


class RedisStore(RedisKeeper, RedisSecrets, RedisDecisions):
    """A ``StateStore`` on a server. Survives the server's restarts; make it with ``open``."""

    def __init__(self, client: Any, waiting: Any) -> None:  # noqa: ANN401 - redis has no types
        self._redis = client
        self._waiting = waiting  # for blocking reads, which hold their connection

    @classmethod
    async def open(cls, url: str, *, wait_s: float = 30.0) -> "RedisStore":
        """Connect, check the server's settings, and load the functions if it lacks them.

        A server that is not reachable yet is waited for, ``wait_s`` seconds at most.

        Raises:
            Misconfigured: the server would lose jobs, is too old, or holds newer functions.
            Unavailable: it could not be reached in time.
        """
        probe = _client(url, connections=1, timeout_s=5.0, retries=0)
        try:
            await _prepare_within(wait_s, probe)
        finally:
            await probe.aclose()
        return cls(
            _client(url, connections=64, timeout_s=5.0, retries=3),
            _client(url, connections=8, timeout_s=_LONGEST_WAIT_S + 5, retries=3),
        )

    # -- changes ------------------------------------------------------------------------------

    async def submit(self, op: str, submission: Submission) -> Result:
        """Accept a job."""
        rules.check_submission(submission)
        return call_result(await self._call("submit", op, submit_request(submission)))

    async def apply(self, op: str, change: Change) -> Result:
        """Make one transition."""
        rules.check_change(change)
        return call_result(await self._call("apply", op, apply_request(change)))

    async def register_node(self, op: str, registration: NodeRegistration) -> Result:
        """Register an agent."""
        return call_result(await self._call("register_node", op, register_request(registration)))

    async def forget_node(self, op: str, forgetting: NodeForgetting) -> Result:
        """Remove a lost node."""
        return call_result(await self._call("forget_node", op, forget_request(forgetting)))

    async def due(self, limit: int = 64) -> tuple[DueTimer, ...]:
        """Hand out due timers."""
        _, timers = await self._call("due", _own_op(), limit)
        return tuple(DueTimer(id=timer) for timer in timers)

    async def acquire_lease(
        self, name: str, holder: str, ttl_s: float, *, renew: bool = False
    ) -> bool:
        """Take or renew a lease."""
        ttl_ms = rules.milliseconds(ttl_s)
        return bool(await self._call("acquire_lease", name, holder, ttl_ms, int(renew)))

    async def release_lease(self, name: str, holder: str) -> None:
        """Give a lease up."""
        await self._call("release_lease", name, holder)

    # -- jobs and nodes -----------------------------------------------------------------------

    async def job(self, job: JobId) -> JobRecord | None:
        """Read one record."""
        (record,) = await self._records([f"job:{job}"])
        return from_json(JobRecord, record) if record else None

    async def spec(self, job: JobId) -> Json | None:
        """Read a specification."""
        spec: Json | None = await self._document("spec", job)
        return spec

    async def plans(self, job: JobId) -> PlanSet | None:
        """Read plans."""
        plans = await self._document("plans", job)
        return None if plans is None else from_json(PlanSet, plans)

    async def pending(self, job: JobId) -> Json | None:
        """Read why a job waits."""
        pending: Json | None = await self._document("pending", job)
        return pending

    async def timeline(self, job: JobId) -> tuple[Json, ...]:
        """Read transitions, oldest first."""
        return await self._list("timeline", job)

    async def list_jobs(
        self,
        *,
        project: ProjectName | None,
        states: frozenset[JobState],
        page_size: int,
        page_token: str,
        labels: Mapping[str, str],
    ) -> JobPage:
        """List jobs, newest first."""
        limit, before = page_limit(page_size), page_start(page_token)
        if project is not None:
            indexes = [f"{_P}project:{project}"]
        else:
            indexes = [f"{_P}state:{state}" for state in sorted(states)] or [f"{_P}jobs"]
        found: list[JobRecord] = []
        # Without labels and states every job counts, so one fetch holds the page.
        fetch = _FETCH if states or labels else min(limit + 1, _FETCH)
        async for record in self._newest(indexes, before, fetch):
            if (not states or record["state"] in states) and carries(record, labels):
                found.append(from_json(JobRecord, record))
            if len(found) > limit:
                break
        page = tuple(found[:limit])
        return JobPage(
            jobs=page, next_token=token_before(page[-1].sequence) if len(found) > limit else ""
        )

    async def jobs_in(self, states: frozenset[JobState]) -> tuple[JobRecord, ...]:
        """Read all jobs in non-terminal states, by arrival.

        Which jobs is decided at one moment; each record is as new or newer.
        """
        rules.check_live(states)
        pipeline = self._redis.pipeline(transaction=True)
        for state in states:
            pipeline.zrange(f"{_P}state:{state}", 0, -1, withscores=True)
        members = [entry for found in await _ask(pipeline.execute()) for entry in found]
        records = await self._records([f"job:{job}" for job, _ in sorted(members, key=_sequence)])
        return tuple(from_json(JobRecord, job) for job in records if job["state"] in states)

    async def node(self, node: NodeId) -> NodeRecord | None:
        """Read one node."""
        (record,) = await self._records([f"node:{node}"])
        return from_json(NodeRecord, record) if record else None

    async def cluster(self) -> ClusterSnapshot:
        """Read all nodes and owners at one moment."""
        stored, owners = await _ask(self._redis.fcall_ro(f"{server.LIBRARY}_cluster", 0))
        nodes = [from_json(NodeRecord, loads(text)) for text in stored]
        return ClusterSnapshot(
            nodes=tuple(sorted(nodes, key=lambda node: node.id)),
            owners=dict(sorted(server.pairs(owners).items())),
        )

    async def append_series(self, job: JobId, points: Sequence[Json], keep: int = 2000) -> None:
        """Append training metrics."""
        texts = dumps([dumps(point) for point in points])
        await self._call("append_series", _own_op(), job, keep, texts)

    async def series(self, job: JobId) -> tuple[Json, ...]:
        """Read the kept training metrics."""
        return await self._list("series", job)

    async def note_run(
        self, group: str, run: str, outcome: Json, *, keep: int, groups: int
    ) -> bool:
        """Remember how an attempt went."""
        return bool(await self._call("note_run", group, run, keep, groups, dumps(outcome)))

    async def run_groups(self, after: int) -> tuple[RunGroup, ...]:
        """Read the groups that changed after a revision.

        A run that is noted meanwhile may be read early; its group comes again.
        """
        index = self._redis.zrangebyscore(f"{_P}runs", f"({after}", "+inf", withscores=True)
        changed = await _ask(index)
        pipeline = self._redis.pipeline(transaction=True)
        for name, _ in changed:
            pipeline.lrange(f"{_P}runs:{name}", 0, -1)
        stored = await _ask(pipeline.execute())
        return tuple(
            RunGroup(
                name=name,
                revision=int(revision),
                runs=tuple(loads(text.partition(" ")[2]) for text in texts),
            )
            for (name, revision), texts in zip(changed, stored, strict=True)
        )

    # -- outbox -------------------------------------------------------------------------------

    async def read_outbox(self, after: str, limit: int) -> tuple[OutboxEntry, ...]:
        """Read entries after a cursor."""
        start = after or await self._cursor()
        entries = await _ask(self._redis.xrange(_OUTBOX, min=f"({start}", count=limit))
        return tuple(outbox_entry(cursor, fields) for cursor, fields in entries)

    async def wait_outbox(self, after: str, timeout_s: float) -> bool:
        """Wait for an entry after a cursor, on a connection of its own."""
        start = after or await self._cursor()
        block_ms = max(1, rules.milliseconds(min(timeout_s, _LONGEST_WAIT_S)))
        return bool(await _ask(self._waiting.xread({_OUTBOX: start}, count=1, block=block_ms)))

    async def advance_outbox(self, cursor: str) -> None:
        """Remember what is published; drop published entries of more than a day ago."""
        await self._call("advance_outbox", cursor)

    # -- projects, health ---------------------------------------------------------------------

    async def projects(self) -> tuple[Project, ...]:
        """Read all projects."""
        stored = await _ask(self._redis.hgetall(f"{_P}projects"))
        return tuple(from_json(Project, loads(stored[name])) for name in sorted(stored))

    async def put_usage(self, usage: Json) -> None:
        """Store what projects have had."""
        await _ask(self._redis.set(f"{_P}usage:all", dumps(usage)))

    async def usage(self) -> Json | None:
        """Read what projects have had."""
        usage: Json | None = await self._document("usage", "all")
        return usage

    async def counts(self) -> Mapping[str, int]:
        """Return jobs per state."""
        pipeline = self._redis.pipeline(transaction=True)
        for state in JobState:
            pipeline.zcard(f"{_P}state:{state}")
        counts = await _ask(pipeline.execute())
        return {state.value: count for state, count in zip(JobState, counts, strict=True)}

    async def health(self) -> StoreHealth:
        """Tell whether the store can take work."""
        try:
            pipeline = self._redis.pipeline(transaction=False)  # every submission asks
            pipeline.info("memory").get(f"{_P}safe_mode")
            pipeline.hmget(_OUTBOX_STATE, "posted", "published")
            info, safe_mode, state = await _ask(pipeline.execute())
        except FrenzyError as error:
            return StoreHealth(
                reachable=False, detail=error.message, outbox_lag=0, memory_used_ratio=0.0
            )
        posted, published = (int(number or 0) for number in state)
        limit = info["maxmemory"]
        return StoreHealth(
            reachable=True,
            detail="",
            outbox_lag=posted - published,
            memory_used_ratio=info["used_memory"] / limit if limit else 0.0,
            safe_mode=safe_mode or "",
        )

    async def close(self) -> None:
        """Close connections."""
        await self._redis.aclose()
        await self._waiting.aclose()

    # -- inside -------------------------------------------------------------------------------

    async def _call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        return await _ask(self._redis.fcall(f"{server.LIBRARY}_{function}", 0, *arguments))

    async def _document(self, name: str, owner: str) -> Any:  # noqa: ANN401
        text = await _ask(self._redis.get(f"{_P}{name}:{owner}"))
        return None if text is None else loads(text)

    async def _list(self, name: str, job: str) -> tuple[Json, ...]:
        stored = await _ask(self._redis.lrange(f"{_P}{name}:{job}", 0, -1))
        return tuple(loads(text) for text in stored)

    async def _cursor(self) -> str:
        return await _ask(self._redis.hget(_OUTBOX_STATE, "cursor")) or "0-0"

    async def _newest(
        self, indexes: Sequence[str], before: int | None, fetch: int
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the records of several indexes' jobs, newest first."""
        while True:
            top = "+inf" if before is None else f"({before}"
            pipeline = self._redis.pipeline(transaction=True)
            for index in indexes:
                pipeline.zrevrangebyscore(index, top, "-inf", start=0, num=fetch, withscores=True)
            members = [entry for found in await _ask(pipeline.execute()) for entry in found]
            newest = sorted(members, key=_sequence, reverse=True)[:fetch]
            for record in await self._records([f"job:{job}" for job, _ in newest]):
                yield record
            if len(newest) < fetch:
                return
            before = int(newest[-1][1])

    async def _records(self, entities: Sequence[str]) -> list[dict[str, Any]]:
        """Read records, {} for what does not exist."""
        found: list[dict[str, Any]] = []
        for start in range(0, len(entities), _FETCH):
            part = entities[start : start + _FETCH]
            stored = await _ask(self._redis.fcall_ro(f"{server.LIBRARY}_records", 0, *part))
            found += [loads(text) for text in stored]
        return found


async def _prepare_within(wait_s: float, client: Any) -> None:  # noqa: ANN401
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        try:
            return await _prepare(client)
        except Unavailable as error:
            if loop.time() > deadline:
                raise
            log.warning("%s; trying again", error.message)
        await asyncio.sleep(0.5)


async def _prepare(client: Any) -> None:  # noqa: ANN401
    info = await _ask(client.info())
    config = await _ask(client.config_get(*server.required_settings()))
    server.check_server(info, config)
    stored = await _ask(client.function_list(server.LIBRARY, withcode=True))
    ours = server.functions_code()
    if server.must_load(server.library_code(stored), ours):
        try:
            await _ask(client.function_load(ours, replace=True))
        except Misconfigured as error:
            raise server.may_not_load(error) from None


def _client(url: str, *, connections: int, timeout_s: float, retries: int) -> Any:  # noqa: ANN401
    """Return a client that reconnects and repeats calls; every call is safe to repeat."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=5,
        socket_timeout=timeout_s,
        socket_connect_timeout=2.0,
        health_check_interval=15,
        decode_responses=True,
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), retries),
    )
    return redis.asyncio.Redis.from_pool(pool)


async def _ask(reply: Awaitable[Any]) -> Any:  # noqa: ANN401
    with _causes():
        return await reply


@contextmanager
def _causes() -> Iterator[None]:
    """Turn the client's errors into ours, with the cause and what to do about it."""
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
        raise Misconfigured(
            f"the store refused this service's account: {error}",
            suggestions=("check the password and rights in FRENZY_REDIS_URL",),
        ) from error
    except exceptions.BusyLoadingError as error:
        raise Unavailable("the store is still loading", suggestions=server.RETRY_LATER) from error
    except exceptions.OutOfMemoryError as error:
        raise StorageFull(
            "the store's memory limit is reached; no new jobs are taken",
            suggestions=("raise maxmemory of the Valkey server",),
        ) from error
    except exceptions.ResponseError as error:
        raise server.refused(str(error)) from error
    except (exceptions.RedisError, OSError) as error:
        raise StoreUnreachable(
            f"the store cannot be reached: {error}",
            suggestions=("check that the Valkey server runs", *server.RETRY_LATER),
        ) from error


def _own_op() -> str:
    """Return an operation id for a call that only the client library may repeat."""
    return f"call:{secrets.token_hex(16)}"


def _sequence(member: tuple[str, float]) -> float:
    return member[1]
