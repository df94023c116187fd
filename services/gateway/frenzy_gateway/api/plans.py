"""Plans: a dry run, without side effects."""

from fastapi import Request

from frenzy_gateway.api.access import Service, Viewer, api_router
from frenzy_gateway.api.body import json_request, read_spec
from frenzy_shared.messages import http
from frenzy_shared.messages.spec import JobSpec

router = api_router("plans")


@router.post("/plans", openapi_extra=json_request(JobSpec))
async def make_plans(
    request: Request,
    service: Service,
    _: Viewer,
    *,
    project: str = "default",  # noqa: ARG001 - a submit's query is valid here too
) -> http.PlanResult:
    """Rank the ways in which a job could run on the present cluster. Nothing is stored.

    Plans are the same for every ``project``: a cluster's devices belong to all of them.
    """
    return await service.plan(await read_spec(request))
