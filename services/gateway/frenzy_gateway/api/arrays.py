"""Arrays of jobs: submit and cancel as one. Their jobs carry the label ``array``."""

from fastapi import Request, Response

from frenzy_gateway.api.access import Service, Shares, Submitter, api_router
from frenzy_gateway.api.body import json_request, read_spec
from frenzy_gateway.api.jobs import KEY_HEADER, home
from frenzy_gateway.api.middleware import sender_of
from frenzy_gateway.arrays import Arrays
from frenzy_shared.messages import http
from frenzy_shared.messages.spec import JobSpec

router = api_router("arrays")


@router.post(
    "/arrays",
    status_code=201,
    responses={200: {"description": "The same request came before", "model": http.ArrayView}},
    openapi_extra={**json_request(JobSpec), "parameters": [KEY_HEADER]},
)
async def submit_array(
    request: Request,
    response: Response,
    service: Service,
    caller: Submitter,
    shares: Shares,
    *,
    project: str | None = None,
    force_queue: bool = False,
) -> http.ArrayView:
    """Submit the jobs of an array. A retry with the same key makes no second ones."""
    name = service.writable(caller, project if project is not None else home(caller))
    shares.admit(name, sender_of(request))
    spec = await read_spec(request)
    async with shares.slot(name):
        key = request.headers.get("idempotency-key")
        arrays = Arrays(service=service)
        array = await arrays.submit(caller, spec, name, key, force_queue=force_queue)
    if array.created:
        shares.charge(name, len(array.jobs) - 1)
    response.headers["Location"] = f"/api/v1/jobs?label.array={array.id}"
    if not array.created:
        response.status_code = 200
    return array


@router.post("/arrays/{array}:cancel")
async def cancel_array(array: str, service: Service, caller: Submitter) -> http.ArrayView:
    """Cancel the jobs of an array that are not over; the answer names them."""
    return await Arrays(service=service).cancel(caller, array)
