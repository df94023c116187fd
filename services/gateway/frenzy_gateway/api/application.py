"""Put the routes together: ``build_api`` is the whole HTTP surface of the gateway."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.exceptions import HTTPException

from frenzy_gateway.api import (
    admin,
    arrays,
    blobs,
    deadletters,
    enrolment,
    integrations,
    jobs,
    meta,
    nodes,
    plans,
    projects,
    queue,
    secrets,
    streams,
    tokens,
)
from frenzy_gateway.api.access import SECURITY_SCHEME
from frenzy_gateway.api.middleware import Observed, Turnstile, problem_response
from frenzy_gateway.diagnosis import explained
from frenzy_gateway.metrics import GatewayMetrics
from frenzy_gateway.problems import MethodNotAllowed, UnsupportedMediaType
from frenzy_gateway.service import GatewayService
from frenzy_gateway.sse import Followers
from frenzy_gateway.throttle import Throttle
from frenzy_shared.errors import BadRequest, FieldProblem, FrenzyError, NotFound
from frenzy_shared.messages import http
from frenzy_shared.messages.estimate import EstimateRequest
from frenzy_shared.messages.integrations import IntegrationKey, IntegrationRequest
from frenzy_shared.messages.projects import ProjectSettings
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.wording import plain_words, pointer_to
from frenzy_shared.telemetry import Telemetry

_ROUTERS = (
    jobs.router,
    arrays.router,
    streams.router,
    plans.router,
    nodes.router,
    queue.router,
    admin.router,
    deadletters.router,
    blobs.router,
    tokens.router,
    integrations.router,
    projects.router,
    secrets.router,
    meta.router,
    meta.public_router,
    enrolment.router,
    enrolment.public_router,
)
# Bodies that are read by hand, and the one that every error has.
_EXTRA_SCHEMAS: list[tuple[type[BaseModel], JsonSchemaMode]] = [
    (JobSpec, "validation"),
    (EstimateRequest, "validation"),
    (http.TokenRequest, "validation"),
    (http.NodeTokenRequest, "validation"),
    (http.EnrolRequest, "validation"),
    (http.DrainRequest, "validation"),
    (IntegrationRequest, "validation"),
    (IntegrationKey, "validation"),
    (ProjectSettings, "validation"),
    (http.Problem, "serialization"),
]


def build_api(service: GatewayService, telemetry: Telemetry) -> FastAPI:
    """Return the application that serves ``service``.

    Frameworks' own telemetry and documentation pages (which load scripts from a CDN) are off.
    """
    api = FastAPI(
        title="Frenzy",
        version="1",
        summary="Submit a model. Don't pick GPUs.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    api.state.service = service
    api.state.followers = Followers(service.settings.max_followers)
    api.state.throttle = Throttle(
        clock=service.clock,
        rate=service.settings.submit_rate,
        burst=service.settings.submit_burst,
        slots=service.settings.submit_slots,
    )
    api.state.metrics = GatewayMetrics.register(telemetry.registry)
    for router in _ROUTERS:
        api.include_router(router)
    api.add_exception_handler(FrenzyError, _frenzy_error)
    api.add_exception_handler(HTTPException, _framework_error)
    api.add_exception_handler(RequestValidationError, _bad_parameters)
    api.add_middleware(Turnstile, throttle=api.state.throttle)
    api.add_middleware(Observed, telemetry=telemetry, metrics=api.state.metrics)
    api.openapi = lambda: _openapi(api)  # type: ignore[method-assign]
    return api


async def _frenzy_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FrenzyError)  # noqa: S101 - registered for this class
    log = request.app.state.service.settings.store_log
    return problem_response(request, explained(error, log))


async def _framework_error(request: Request, error: Exception) -> Response:
    """Answer what the framework found wrong like everything else."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    path = request.url.path
    known: FrenzyError
    if error.status_code == 404:
        known = NotFound(f"there is nothing at {path}", suggestions=("see /openapi.json",))
    elif error.status_code == 405:
        known = MethodNotAllowed(f"{request.method} is not possible at {path}")
    elif error.status_code == 415:
        known = UnsupportedMediaType(str(error.detail))
    else:
        known = BadRequest(str(error.detail))
    return problem_response(request, known, dict(error.headers or {}))


async def _bad_parameters(request: Request, error: Exception) -> Response:
    """Name every wrong path or query parameter."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    problems = tuple(
        FieldProblem(
            pointer=pointer_to(*detail["loc"][1:]),
            detail=plain_words(detail),
        )
        for detail in error.errors()
    )
    first = problems[0]
    text = f"parameter {first.pointer.lstrip('/')}: {first.detail}"
    return problem_response(request, BadRequest(text, problems=problems))


def _openapi(api: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document: generated, plus bodies and security that are by hand."""
    if api.openapi_schema is None:
        document = get_openapi(
            title=api.title,
            version=api.version,
            summary=api.summary,
            routes=api.routes,
            separate_input_output_schemas=False,
        )
        components = document.setdefault("components", {})
        _, extra = models_json_schema(_EXTRA_SCHEMAS, ref_template="#/components/schemas/{model}")
        components.setdefault("schemas", {}).update(extra["$defs"])
        components["securitySchemes"] = {
            SECURITY_SCHEME: {"type": "http", "scheme": "bearer", "bearerFormat": "frz_id_secret"}
        }
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [{SECURITY_SCHEME: []}] if path.startswith("/api/") else []
                operation["responses"].pop("422", None)  # parameters are answered like the rest
        components["schemas"].pop("HTTPValidationError", None)
        components["schemas"].pop("ValidationError", None)
        api.openapi_schema = document
    return api.openapi_schema
