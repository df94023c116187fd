"""Plans: a dry run, without side effects."""

from fastapi import Request

from frenzy_gateway.api.access import Service, Viewer, api_router
from frenzy_gateway.api.body import json_request, read_spec
from frenzy_shared.messages import http
from frenzy_shared.messages.spec import JobSpec

router = api_router("plans")


@router.post("/plans", openapi_extra=json_request(JobSpec))
async def make_plans(request: Request, service: Service, _: Viewer) -> http.PlanResult:
    """Rank the ways in which a job could run on the present cluster. Nothing is stored."""
    return await service.plan(await read_spec(request))
