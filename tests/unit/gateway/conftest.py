"""The gateway over memory doubles, asked through ASGI: no socket, no server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from frenzy_gateway.api.application import build_api
from frenzy_gateway.service import GatewayService
from frenzy_gateway.settings import GatewaySettings
from frenzy_shared.auth import Role, new_token, token_record
from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.memory_broker import MemoryBroker
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.envelope import CloudEvent, event_type
from frenzy_shared.messages.v1 import LogBatch, LogLine, PlanReply
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import Change, OutboxMessage, StoreHealth
from frenzy_shared.telemetry import Telemetry

SPEC: dict[str, Any] = {"model": "gpt2", "data": "node:/data/text", "global_batch_size": 8}


@dataclass
class FakeClock:
    now: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


class CountingIds:
    def __init__(self) -> None:
        self._count = 0

    def new_id(self) -> str:
        self._count += 1
        return f"id{self._count:024d}"


class FlakyStore(MemoryStore):
    """A store that can be unreachable or under pressure."""

    down = False
    pressure: dict[str, Any] = {}

    def __getattribute__(self, name: str) -> Any:
        if (
            name in ("submit", "apply", "job", "token", "list_jobs", "counts", "cluster")
            and self.down
        ):
            return _refuse
        return super().__getattribute__(name)

    async def health(self) -> StoreHealth:
        healthy = await super().health()
        if self.down:
            return replace(healthy, reachable=False, detail="connection refused")
        return replace(healthy, **self.pressure)


async def _refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise Unavailable("the state store is unreachable")


@dataclass
class Gateway:
    """One gateway with everything behind it, and short ways to make things happen there."""

    store: FlakyStore
    broker: MemoryBroker
    bus: MemoryBus
    clock: FakeClock
    service: GatewayService
    api: Any
    spans: InMemorySpanExporter
    registry: CollectorRegistry
    blobs: DirectoryBlobStore
    marp: list[Any] = field(default_factory=list)

    async def client(
        self, role: Role = Role.ADMIN, project: str = "*", expires_ms: int = 0
    ) -> httpx.AsyncClient:
        token = new_token()
        await self.store.put_token(
            token_record(
                token,
                role=role,
                project=project,
                name=f"{role}-token",
                created_ms=0,
                expires_ms=expires_ms,
            )
        )
        return self.anonymous(Authorization=f"Bearer {token.text}")

    def anonymous(self, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.api), base_url="http://gateway", headers=headers
        )

    async def marp_answers(self, reply: PlanReply) -> None:
        async def answer(message: Any) -> bytes:
            self.marp.append(message)
            return reply.encode()

        await self.bus.serve(subjects.MARP_PLAN, answer, queue="marp")

    async def move(self, job: str, state: JobState, **patch: Any) -> int:
        """Put a job into a state, as the scheduler would."""
        result = await self.store.apply(
            f"move:{job}:{state}:{patch}",
            Change(
                entity=f"job:{job}",
                patch={"state": state, **patch},
                outbox=(
                    OutboxMessage(
                        subject=subjects.job_event("default", "moved", job), type="moved"
                    ),
                ),
            ),
        )
        assert result.ok, result
        return result.version

    async def store_plans(self, job: str, plans: PlanSet) -> None:
        result = await self.store.apply(
            f"plans:{job}", Change(entity=f"job:{job}", documents={"plans": to_json(plans)})
        )
        assert result.ok

    async def relay(self) -> None:
        """Publish the outbox, as the relay does."""
        for entry in await self.store.read_outbox("", 100):
            event = CloudEvent(
                id=entry.message_id,
                source="/frenzy/default",
                type=event_type("job", entry.type),
                subject=entry.entity,
                time="2026-01-01T00:00:00Z",
                data={**entry.data, "record": dict(entry.record)},
            )
            await self.bus.publish(entry.subject, event.encode(), message_id=entry.message_id)
            await self.store.advance_outbox(entry.cursor)

    async def ship(
        self,
        job: str,
        numbers: range | list[int],
        *,
        rank: int = 0,
        attempt: int = 1,
        text: str = "line {}",
        time_ms: int = 0,
    ) -> None:
        """Publish one batch of log lines, as an agent does."""
        lines = tuple(
            LogLine(
                number=n,
                time_ms=time_ms or 1_700_000_000_000 + n,
                output="stdout",
                text=text.format(n),
            )
            for n in numbers
        )
        batch = LogBatch(job=job, attempt=attempt, rank=rank, node="n1", lines=lines)
        await self.bus.publish(
            subjects.log("default", job, attempt, rank),
            batch.encode(),
            message_id=f"{job}:{attempt}:{rank}:{lines[0].number}:{len(lines)}",
        )


@pytest.fixture
def settings() -> GatewaySettings:
    return GatewaySettings(marp_timeout_s=0.2, explain_timeout_s=0.2, receive_timeout_s=0.2)


@pytest.fixture
async def gateway(tmp_path: Path, settings: GatewaySettings) -> AsyncIterator[Gateway]:
    clock, broker = FakeClock(), MemoryBroker(idle_s=0.02)
    store, bus = FlakyStore(clock), MemoryBus(broker)
    blobs = DirectoryBlobStore(tmp_path / "blobs")
    service = GatewayService(
        state=store,
        bus=bus,
        blobs=blobs,
        clock=clock,
        ids=CountingIds(),
        settings=settings,
        stopping=asyncio.Event(),
    )
    spans, provider, registry = InMemorySpanExporter(), TracerProvider(), CollectorRegistry()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(
        service="gateway", tracer=provider.get_tracer("test"), registry=registry, provider=provider
    )
    api = build_api(service, telemetry)
    yield Gateway(
        store=store,
        broker=broker,
        bus=bus,
        clock=clock,
        service=service,
        api=api,
        spans=spans,
        registry=registry,
        blobs=blobs,
    )
    await bus.close()
    telemetry.close()


@pytest.fixture
async def admin(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with await gateway.client() as client:
        yield client


@pytest.fixture
async def job(admin: httpx.AsyncClient) -> str:
    response = await admin.post("/api/v1/jobs", json=SPEC)
    assert response.status_code == 201, response.text
    return response.json()["id"]


Problem = Callable[[httpx.Response, int, str], dict[str, Any]]


@pytest.fixture
def problem() -> Problem:
    """Check that a response is a complete RFC 9457 problem and return it."""

    def check(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
        assert response.headers["content-type"] == "application/problem+json", response.text
        body = response.json()
        assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
        assert all(body[name] for name in ("type", "title", "detail"))
        assert body["instance"] == response.request.url.path
        assert len(body["trace_id"]) == 32
        return body

    return check
