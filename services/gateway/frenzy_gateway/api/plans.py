"""Plans and estimates: dry runs, without side effects."""

from fastapi import Request

from frenzy_gateway.api.access import Service, Shares, Viewer, api_router
from frenzy_gateway.api.body import json_request, read_estimate, read_spec
from frenzy_gateway.api.jobs import home
from frenzy_gateway.api.middleware import sender_of
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import http
from frenzy_shared.messages.estimate import DriftList, EstimateRequest, EstimateView
from frenzy_shared.messages.spec import JobSpec

router = api_router("plans")


@router.post("/plans", openapi_extra=json_request(JobSpec))
async def make_plans(
    request: Request,
    service: Service,
    caller: Viewer,
    shares: Shares,
    *,
    project: str = "default",  # noqa: ARG001 - a submit's query is valid here too
) -> http.PlanResult:
    """Rank the ways in which a job could run on the present cluster. Nothing is stored.

    Plans are the same for every ``project``: a cluster's devices belong to all of them.
    """
    owner = ProjectName(home(caller))
    shares.admit(owner, sender_of(request))
    spec = await read_spec(request)
    async with shares.slot(owner):
        return await service.plan(spec)


@router.post("/estimates", openapi_extra=json_request(EstimateRequest))
async def make_estimate(
    request: Request, service: Service, caller: Viewer, shares: Shares
) -> EstimateView:
    """Say what one exact configuration takes: memory by term and moment, RAM, disk and speed.

    The configuration is what the job's specification pins, changed by ``overrides``; what neither
    fixes: one GPU, ZeRO-1, the whole share of a GPU as micro-batch, no checkpointing, and the best
    precision of the GPU. Nothing is stored.
    """
    owner = ProjectName(home(caller))
    shares.admit(owner, sender_of(request))
    asked = await read_estimate(request)
    async with shares.slot(owner):
        return await service.estimate(asked)


@router.get("/drifts")
async def get_drifts(service: Service, _: Viewer) -> DriftList:
    """Show where predictions of memory have lately left their bands."""
    reply = await service.questions.drifts()
    if reply is None:
        raise Unavailable("MARP does not answer", suggestions=("is frenzy_marp running?",))
    return reply
