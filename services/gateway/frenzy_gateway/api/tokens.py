"""API tokens."""

from fastapi import Request, Response

from frenzy_gateway.api.access import Admin, Service, api_router
from frenzy_gateway.api.body import json_request, read_model
from frenzy_shared.messages import http

router = api_router("tokens")


@router.post("/tokens", status_code=201, openapi_extra=json_request(http.TokenRequest))
async def create_token(
    request: Request, response: Response, service: Service, caller: Admin
) -> http.TokenView:
    """Make a token; its secret is in this answer and nowhere else."""
    response.headers["Cache-Control"] = "no-store"
    return await service.tokens.create(caller, await read_model(request, http.TokenRequest))


@router.get("/tokens")
async def list_tokens(service: Service, caller: Admin) -> http.TokenList:
    """Show the tokens of the projects that you administer, without their secrets."""
    return await service.tokens.list(caller)


@router.post("/tokens/{token}:revoke", status_code=204)
async def revoke_token(token: str, service: Service, caller: Admin) -> Response:
    """Make a token void, at once and at every gateway."""
    await service.tokens.revoke(caller, token)
    return Response(status_code=204)
