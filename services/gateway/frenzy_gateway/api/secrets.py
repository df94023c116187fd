"""Secrets of a project. Values go in; there is no way to read one back."""

from fastapi import Request, Response

from frenzy_gateway.api.access import Service, Submitter, api_router
from frenzy_gateway.api.body import receive
from frenzy_shared.messages.secrets import MAX_SECRET_BYTES, SecretList, SecretView

router = api_router("secrets")

_TEXT = {"text/plain": {"schema": {"type": "string", "minLength": 1}}}


@router.get("/projects/{project}/secrets")
async def list_secrets(project: str, service: Service, caller: Submitter) -> SecretList:
    """Show a project's secrets by name, without their values."""
    return await service.secrets.list(caller, project)


@router.put(
    "/projects/{project}/secrets/{name}",
    openapi_extra={"requestBody": {"required": True, "content": _TEXT}},
)
async def put_secret(
    project: str, name: str, request: Request, service: Service, caller: Submitter
) -> SecretView:
    """Keep the body, text of up to 64 KiB, as a secret; one of the same name is replaced."""
    silence_s = service.settings.receive_timeout_s
    body = b"".join([chunk async for chunk in receive(request, MAX_SECRET_BYTES, silence_s)])
    return await service.secrets.put(caller, project, name, body)


@router.delete("/projects/{project}/secrets/{name}", status_code=204)
async def delete_secret(project: str, name: str, service: Service, caller: Submitter) -> Response:
    """Remove a secret. Jobs that run keep what they got; those that start later fail."""
    await service.secrets.delete(caller, project, name)
    return Response(status_code=204)
