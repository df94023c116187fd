"""The service itself: version, health, metrics, schemas. Probes and schemas need no token."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from frenzy_gateway.api.access import Service, Viewer, api_router
from frenzy_gateway.metrics import GatewayMetrics
from frenzy_shared.messages import http
from frenzy_shared.messages.spec import JobSpec

router = api_router("meta")
public_router = APIRouter(tags=["meta"])


@router.get("/version")
async def get_version(_: Viewer) -> http.VersionView:
    """Tell what answers."""
    try:
        return http.VersionView(version=version("frenzy"))
    except PackageNotFoundError:  # run from a source tree that was never installed
        return http.VersionView(version="unknown")


@public_router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Tell that the process runs."""
    return "ok\n"


@public_router.get(
    "/readyz", responses={503: {"description": "Not ready", "model": http.ReadinessView}}
)
async def readyz(service: Service, response: Response) -> http.ReadinessView:
    """Tell whether jobs are accepted; with 200 and "degraded" they are, but wait."""
    readiness = await service.readiness.check(stopping=service.stopping.is_set())
    if readiness.status not in ("ready", "degraded"):
        response.status_code = 503
    return readiness


@public_router.get("/metrics", response_class=PlainTextResponse)
async def get_prometheus(request: Request, service: Service) -> Response:
    """Show metrics in the Prometheus text format."""
    metrics: GatewayMetrics = request.app.state.metrics
    body, media_type = await metrics.render(service.state)
    return Response(body, media_type=media_type)


@public_router.get("/schemas/job.json")
async def get_job_schema() -> dict[str, Any]:
    """Show the JSON Schema of a job specification."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JobSpec.model_json_schema(),
    }
