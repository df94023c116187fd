"""Machines that become nodes. Enrolling itself is proven by the one-time token in the body."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from frenzy_gateway.api.access import ClusterAdmin, Service, api_router
from frenzy_gateway.api.body import json_request, read_model
from frenzy_gateway.problems import openapi_responses
from frenzy_shared.messages import http

router = api_router("nodes")
public_router = APIRouter(tags=["nodes"], responses=openapi_responses())


@router.post("/nodes:token", status_code=201, openapi_extra=json_request(http.NodeTokenRequest))
async def create_node_token(
    request: Request, response: Response, service: Service, _: ClusterAdmin
) -> http.NodeTokenView:
    """Make a one-time token with which a machine becomes a node."""
    response.headers["Cache-Control"] = "no-store"
    return service.enrolment.invite(await read_model(request, http.NodeTokenRequest))


@router.post("/nodes/{node}:revoke", status_code=204)
async def revoke_node(node: str, service: Service, caller: ClusterAdmin) -> Response:
    """Shut a node out: its connections end at once."""
    await service.enrolment.revoke(caller, node)
    await service.operations.shut_out(caller, node)
    return Response(status_code=204)


@public_router.post("/enrol", status_code=201, openapi_extra=json_request(http.EnrolRequest))
async def enrol_node(request: Request, response: Response, service: Service) -> http.EnrolView:
    """Admit a machine by its one-time token; its answer holds a token for blobs."""
    response.headers["Cache-Control"] = "no-store"
    admitted = await service.enrolment.enrol(await read_model(request, http.EnrolRequest))
    await service.operations.readmit(admitted.node)
    return admitted


@public_router.get("/ca.pem", response_class=PlainTextResponse)
async def get_authority(service: Service) -> str:
    """Show the certificate of the cluster's authority; check its fingerprint before trusting it."""
    return service.enrolment.authority_pem()
