"""Nodes and their devices."""

from frenzy_gateway.api.access import Service, Viewer, api_router
from frenzy_shared.messages import http

router = api_router("nodes")


@router.get("/nodes")
async def list_nodes(service: Service, _: Viewer) -> http.NodeList:
    """Show all nodes, by name, and who owns their devices."""
    return await service.nodes()
