"""Who may call a route: every ``/api`` router authenticates, every route names a role."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.security.utils import get_authorization_scheme_param

from frenzy_gateway.callers import Caller
from frenzy_gateway.problems import openapi_responses
from frenzy_gateway.service import GatewayService
from frenzy_shared.auth import Role
from frenzy_shared.errors import Forbidden, Unauthenticated

SECURITY_SCHEME: Final = "bearer"


def service_of(request: Request) -> GatewayService:
    """Return the service that the application was built with."""
    service: GatewayService = request.app.state.service
    return service


Service = Annotated[GatewayService, Depends(service_of)]


async def authenticate(request: Request, service: Service) -> Caller:
    """Return the caller that the Authorization header proves.

    Raises:
        Unauthenticated: no bearer token, or one that is unknown, wrong or expired.
    """
    header = request.headers.get("authorization")
    if not header:
        raise Unauthenticated(
            "this route needs an API token",
            suggestions=("send the header Authorization: Bearer frz_<id>_<secret>",),
        )
    scheme, token = get_authorization_scheme_param(header)
    if scheme.lower() != "bearer":
        raise Unauthenticated("the Authorization header must be of the form: Bearer <token>")
    return await service.callers.authenticate(token)


@dataclass(frozen=True, slots=True)
class Policy:
    """Lets callers with at least ``role`` pass."""

    role: Role

    async def __call__(self, caller: Annotated[Caller, Depends(authenticate)]) -> Caller:
        """Return the caller; ``Forbidden`` when the role is too low."""
        if not caller.role.includes(self.role):
            raise Forbidden(
                f"this needs the role {self.role!s}; your token is a {caller.role!s}'s",
                suggestions=(f"ask an administrator for a {self.role!s} token",),
            )
        return caller


Viewer = Annotated[Caller, Depends(Policy(Role.VIEWER))]
Submitter = Annotated[Caller, Depends(Policy(Role.SUBMITTER))]
Admin = Annotated[Caller, Depends(Policy(Role.ADMIN))]


def api_router(tag: str) -> APIRouter:
    """Return a router below ``/api/v1``, closed to callers without a valid token."""
    return APIRouter(
        prefix="/api/v1",
        tags=[tag],
        dependencies=[Depends(authenticate)],
        responses=openapi_responses(),
    )
