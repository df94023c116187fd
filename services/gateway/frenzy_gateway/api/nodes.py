"""Nodes and their devices."""

from fastapi import Request, Response

from frenzy_gateway.api.access import ClusterAdmin, Service, Viewer, api_router
from frenzy_gateway.api.body import json_request, read_model
from frenzy_shared.messages import http

router = api_router("nodes")


@router.get("/nodes")
async def list_nodes(service: Service, _: Viewer) -> http.NodeList:
    """Show all nodes, by name, and who owns their devices."""
    return await service.nodes()


@router.post("/nodes/{node}:drain", openapi_extra=json_request(http.DrainRequest))
async def drain_node(
    node: str, request: Request, service: Service, caller: ClusterAdmin
) -> http.NodeView:
    """Give a node no new work. Its jobs finish there, or stop when the deadline is over."""
    wanted = await read_model(request, http.DrainRequest)
    return await service.operations.drain(caller, node, wanted)


@router.post("/nodes/{node}:undrain")
async def undrain_node(node: str, service: Service, caller: ClusterAdmin) -> http.NodeView:
    """Let a drained node have work again, and forget its strikes."""
    return await service.operations.undrain(caller, node)


@router.post("/nodes/{node}:confirm-dead")
async def confirm_node_dead(node: str, service: Service, caller: ClusterAdmin) -> http.NodeView:
    """Say that nothing runs on a silent node: its jobs start elsewhere without waiting."""
    return await service.operations.confirm_dead(caller, node)


@router.delete("/nodes/{node}", status_code=204)
async def forget_node(node: str, service: Service, caller: ClusterAdmin) -> Response:
    """Remove the record of a lost node. Its credentials, if it has any, stay: revoke them."""
    await service.operations.forget_node(caller, node)
    return Response(status_code=204)
