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
    return await service.callers.create_token(caller, await read_model(request, http.TokenRequest))
