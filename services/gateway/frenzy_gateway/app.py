"""Composition root of the gateway: real servers, real clock, one HTTP server."""

import asyncio
import datetime as dt
import logging
from contextlib import AsyncExitStack
from typing import Final

from frenzy_gateway.adapters.certificate import ServedCertificate
from frenzy_gateway.adapters.sealing import Sealer
from frenzy_gateway.adapters.server import listen, serve
from frenzy_gateway.api.application import build_api
from frenzy_gateway.collection import Collection
from frenzy_gateway.secret_delivery import QUEUE, SecretDelivery
from frenzy_gateway.service import GatewayService
from frenzy_gateway.settings import GatewaySettings
from frenzy_shared.auth import ALL_PROJECTS, Role, parse_token, token_record
from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.blobs.open import open_blob_store
from frenzy_shared.blobs.port import BlobStore
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import bus_access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.clock import RandomIds, SystemClock
from frenzy_shared.errors import Misconfigured
from frenzy_shared.messages import subjects
from frenzy_shared.runtime import every, run_until_stopped
from frenzy_shared.state.port import StateStore
from frenzy_shared.state.redis import RedisStore
from frenzy_shared.telemetry import Telemetry, configure

log = logging.getLogger(__name__)

_CERTIFICATE_LOOK_S: Final = 10.0


async def run(settings: GatewaySettings) -> None:
    """Run the gateway until SIGTERM or SIGINT."""
    telemetry = configure("gateway", settings)
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.callback(telemetry.close)
        listener = stack.enter_context(listen(settings.http_host, settings.http_port))
        certificate = _certificate(settings, telemetry)
        ids, clock = RandomIds(), SystemClock()
        state = await RedisStore.open(settings.redis_url.get_secret_value())
        stack.push_async_callback(state.close)
        bus = await NatsBus.connect(
            bus_access(settings), name=connection_name(BusRole.GATEWAY), timeout_s=30.0
        )
        stack.push_async_callback(bus.close)
        await bus.verify_streams()
        await _store_admin_token(state, settings, clock.now_ms())
        blobs = open_blob_store(settings.blob_location)
        service = GatewayService(
            state=state,
            bus=bus,
            blobs=blobs,
            clock=clock,
            ids=ids,
            settings=settings,
            stopping=stop,
            seal=None if settings.secrets_key is None else Sealer.load(settings.secrets_key),
        )
        await _deliver_secrets(service, stack)
        api = build_api(service, telemetry)
        host, port = listener.getsockname()[:2]
        log.info(
            "API on %s://%s:%d",
            "https" if certificate else "http",
            host,
            port,
            extra={"http_port": port},
        )
        await run_until_stopped(
            lambda stop: serve(
                api,
                listener,
                stop,
                drain_s=settings.drain_s,
                tls=None if certificate is None else certificate.context,
            ),
            lambda stop: _follow(certificate, stop),
            lambda stop: _collect(state, blobs, settings, stop),
            lambda stop: every(settings.collect_s, stop, service.tokens.forget_expired),
            stop=stop,
        )


def _certificate(settings: GatewaySettings, telemetry: Telemetry) -> ServedCertificate | None:
    """Return the certificate to serve with; None without TLS."""
    if settings.certificate is None:
        return None
    found = ServedCertificate(*settings.certificate, now=lambda: dt.datetime.now(dt.UTC))
    found.register(telemetry.registry)
    return found


async def _follow(certificate: ServedCertificate | None, stop: asyncio.Event) -> None:
    """Serve a renewed certificate soon after it is there."""
    if certificate is None:
        await stop.wait()
        return
    await every(_CERTIFICATE_LOOK_S, stop, certificate.look)


async def _deliver_secrets(service: GatewayService, stack: AsyncExitStack) -> None:
    """Answer nodes that ask for secrets, until the stack closes; first use the newest key."""
    if service.seal is None:
        return
    if count := await service.secrets.reseal():
        log.info("%d secrets are sealed with a newer key now", count)
    delivery = SecretDelivery(state=service.state, seal=service.seal)
    asked = await service.bus.serve(subjects.SECRETS, delivery.answer, queue=QUEUE)
    stack.push_async_callback(asked.stop)


async def _collect(
    state: StateStore, blobs: BlobStore, settings: GatewaySettings, stop: asyncio.Event
) -> None:
    """Remove unneeded blobs until ``stop``; a store of blobs elsewhere has its own keeper."""
    if not isinstance(blobs, DirectoryBlobStore):
        await stop.wait()
        return
    collection = Collection(state=state, blobs=blobs, keep_s=settings.retention_blobs_s)
    await every(settings.collect_s, stop, collection.look)


async def _store_admin_token(state: StateStore, settings: GatewaySettings, now_ms: int) -> None:
    """Store the operator's own token, so that there is a first one."""
    if settings.admin_token is None:
        return
    token = parse_token(settings.admin_token.get_secret_value())
    if token is None:
        raise Misconfigured("FRENZY_ADMIN_TOKEN must have the form frz_<12 hex>_<64 hex>")
    record = token_record(
        token, role=Role.ADMIN, project=ALL_PROJECTS, name="admin", created_ms=now_ms
    )
    await state.put_token(record)
