"""Who may call a route: every ``/api`` router authenticates, every route names a role."""

import difflib
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.security.utils import get_authorization_scheme_param

from frenzy_gateway.api.body import receive
from frenzy_gateway.callers import Caller
from frenzy_gateway.problems import openapi_responses
from frenzy_gateway.service import GatewayService
from frenzy_gateway.throttle import Throttle
from frenzy_shared.auth import ALL_PROJECTS, Role
from frenzy_shared.errors import BadRequest, Forbidden, Unauthenticated
from frenzy_shared.units import KIB

SECURITY_SCHEME: Final = "bearer"
_UNREAD_BYTES: Final = 64 * KIB  # of a body that only a mistake would send
LABEL: Final = "label."  # a job's label as a query parameter


def service_of(request: Request) -> GatewayService:
    """Return the service that the application was built with."""
    service: GatewayService = request.app.state.service
    return service


Service = Annotated[GatewayService, Depends(service_of)]


def throttle_of(request: Request) -> Throttle:
    """Return what bounds each project's share of this gateway."""
    throttle: Throttle = request.app.state.throttle
    return throttle


Shares = Annotated[Throttle, Depends(throttle_of)]


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


async def only_known_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not have: ``dry_run`` must not submit a job.

    Raises:
        BadRequest: naming the parameter and the nearest that exists.
    """
    known = _query_parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known and not name.startswith(LABEL):
            close = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
            )
            raise BadRequest(f"unknown query parameter {name[:80]!r}; {hint}")


async def only_described_bodies(request: Request, service: Service) -> None:
    """Refuse a body that the route would not read: ``{"apply": true}`` must not be a dry run.

    Raises:
        BadRequest: naming the query parameters that the route has.
    """
    route, headers = request.scope["route"], request.headers
    announced = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if not announced or "requestBody" in (route.openapi_extra or {}):
        return
    body = b""
    async for chunk in receive(request, _UNREAD_BYTES, service.settings.receive_timeout_s):
        body += chunk
    if body.strip() not in (b"", b"{}"):
        known = ", ".join(_query_parameters(route.dependant)) or "none"
        raise BadRequest(
            f"this route takes no body; its query parameters: {known}",
            suggestions=("send the request without a body, parameters in the query",),
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Lets callers with at least ``role`` pass.

    ``everywhere``: what the route does concerns the whole cluster, so a token of one project is
    not enough.
    """

    role: Role
    everywhere: bool = False

    async def __call__(self, caller: Annotated[Caller, Depends(authenticate)]) -> Caller:
        """Return the caller; ``Forbidden`` when the role is too low, or its scope too small."""
        if not caller.role.includes(self.role):
            raise Forbidden(
                f"this needs the role {self.role!s}; your token is a {caller.role!s}'s",
                suggestions=(f"ask an administrator for a {self.role!s} token",),
            )
        if self.everywhere and caller.project != ALL_PROJECTS:
            raise Forbidden(
                f"this concerns the whole cluster and needs an {self.role!s} of all projects; your "
                f"token is limited to project {caller.project!r}",
                suggestions=("ask an administrator of all projects to do it",),
            )
        return caller


Node = Annotated[Caller, Depends(Policy(Role.NODE))]
Viewer = Annotated[Caller, Depends(Policy(Role.VIEWER))]
Submitter = Annotated[Caller, Depends(Policy(Role.SUBMITTER))]
Admin = Annotated[Caller, Depends(Policy(Role.ADMIN))]  # of one project, or of all
ClusterAdmin = Annotated[Caller, Depends(Policy(Role.ADMIN, everywhere=True))]


def api_router(tag: str) -> APIRouter:
    """Return a router below ``/api/v1``, closed to callers without a valid token."""
    return APIRouter(
        prefix="/api/v1",
        tags=[tag],
        dependencies=[
            Depends(authenticate),
            Depends(only_known_parameters),
            Depends(only_described_bodies),
        ],
        responses=openapi_responses(),
    )


def _query_parameters(dependant: Dependant) -> list[str]:
    own = [parameter.alias for parameter in dependant.query_params]
    return [*own, *(name for part in dependant.dependencies for name in _query_parameters(part))]
