"""Integrations; for administrators of all projects only."""

from fastapi import Request, Response

from frenzy_gateway.api.access import ClusterAdmin, Service, api_router
from frenzy_gateway.api.body import json_request, read_model
from frenzy_shared.messages.integrations import (
    IntegrationAccess,
    IntegrationKey,
    IntegrationList,
    IntegrationRequest,
)

router = api_router("integrations")


@router.post("/integrations", status_code=201, openapi_extra=json_request(IntegrationRequest))
async def create_integration(
    request: Request, service: Service, caller: ClusterAdmin
) -> IntegrationAccess:
    """Let a program follow events on the bus, with a key and a durable consumer of its own."""
    body = await read_model(request, IntegrationRequest)
    return await service.integrations.create(caller, body)


@router.get("/integrations")
async def list_integrations(service: Service, _: ClusterAdmin) -> IntegrationList:
    """Show all integrations and how far they are."""
    return await service.integrations.list()


@router.post("/integrations/{name}:rotate", openapi_extra=json_request(IntegrationKey))
async def rotate_integration(
    name: str, request: Request, service: Service, caller: ClusterAdmin
) -> IntegrationAccess:
    """Give an integration another key; the old one is worthless at once."""
    body = await read_model(request, IntegrationKey)
    return await service.integrations.rotate(caller, name, body.public_key)


@router.post("/integrations/{name}:revoke", status_code=204)
async def revoke_integration(name: str, service: Service, caller: ClusterAdmin) -> Response:
    """Shut an integration out: its connections end at once."""
    await service.integrations.revoke(caller, name)
    return Response(status_code=204)
