"""Jobs: submit, look at, list, cancel."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response

from frenzy_gateway.api.access import LABEL, Service, Shares, Submitter, Viewer, api_router
from frenzy_gateway.api.body import json_request, read_spec
from frenzy_gateway.api.middleware import sender_of
from frenzy_gateway.callers import Caller
from frenzy_gateway.views import timeline_view
from frenzy_shared.auth import ALL_PROJECTS
from frenzy_shared.domain.ids import is_name
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.errors import BadRequest, NotFound
from frenzy_shared.messages import http
from frenzy_shared.messages.spec import JobSpec

router = api_router("jobs")

KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1-255 visible ASCII characters; a retry with the same key makes no second job",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


@router.post(
    "/jobs",
    status_code=201,
    responses={
        200: {
            "description": "The same request came before, or validate_only",
            "model": http.JobView,
        }
    },
    openapi_extra={**json_request(JobSpec), "parameters": [KEY_HEADER]},
)
async def submit_job(
    request: Request,
    response: Response,
    service: Service,
    caller: Submitter,
    shares: Shares,
    *,
    project: str | None = None,
    force_queue: bool = False,
    validate_only: bool = False,
) -> http.JobView:
    """Submit a job. With ``force_queue`` it waits even if no present device fits.

    With ``validate_only`` everything is checked, nothing is stored, and the answer is the job as
    it would be, with the id "".
    """
    name = project if project is not None else home(caller)
    owner = service.writable(caller, name)
    shares.admit(owner, sender_of(request))
    spec = await read_spec(request)
    async with shares.slot(owner):
        if validate_only:
            response.status_code = 200
            return await service.preview(caller, spec, name, force_queue=force_queue)
        key = request.headers.get("idempotency-key")
        accepted = await service.submit(caller, spec, name, key, force_queue=force_queue)
    response.headers["Location"] = f"/api/v1/jobs/{accepted.job.id}"
    if not accepted.created:
        response.status_code = 200
    return accepted.job


@router.get("/jobs")
async def list_jobs(
    request: Request,
    service: Service,
    caller: Viewer,
    *,
    state: Annotated[list[JobState], Query()] = [],  # noqa: B006 - FastAPI copies defaults
    project: str | None = None,
    page_size: Annotated[int, Query(ge=1, le=200)] = 50,
    page_token: str = "",
) -> http.JobList:
    """List jobs, newest first; ``label.<key>=<value>`` filters by labels."""
    return await service.list_jobs(
        caller,
        project=project,
        states=frozenset(state),
        labels=_labels(request.query_params),
        page_size=page_size,
        page_token=page_token,
    )


@router.get("/jobs/{job}")
async def get_job(job: str, service: Service, caller: Viewer) -> http.JobView:
    """Show a job."""
    return await service.view(await service.record(caller, job))


@router.post("/jobs/{job}:cancel")
async def cancel_job(job: str, service: Service, caller: Submitter) -> http.JobView:
    """Cancel a job. Cancelling again changes nothing; a finished job is a conflict."""
    return await service.cancel(caller, job)


@router.post("/jobs/{job}:hold")
async def hold_job(job: str, service: Service, caller: Submitter) -> http.JobView:
    """Keep a waiting job from starting. Holding again changes nothing."""
    return await service.hold(caller, job)


@router.post("/jobs/{job}:release")
async def release_job(job: str, service: Service, caller: Submitter) -> http.JobView:
    """Let a job that was held back start again. Releasing again changes nothing."""
    return await service.release(caller, job)


@router.get("/jobs/{job}/spec")
async def get_spec(job: str, service: Service, caller: Viewer) -> dict[str, Any]:
    """Show the specification as it was accepted."""
    record = await service.record(caller, job)
    spec = await service.state.spec(record.id)
    if spec is None:
        raise NotFound(f"the specification of job {record.id} is no longer kept")
    return dict(spec)


@router.get("/jobs/{job}/plans")
async def get_plans(job: str, service: Service, caller: Viewer) -> http.PlanResult:
    """Show MARP's plans for a job; none before it was planned."""
    record = await service.record(caller, job)
    none = PlanSet(plans=(), refused=(), kinds_digest="", message="not planned yet")
    return http.PlanResult(plans=await service.state.plans(record.id) or none)


@router.get("/jobs/{job}/timeline")
async def get_timeline(job: str, service: Service, caller: Viewer) -> http.Timeline:
    """Show a job's transitions, oldest first."""
    record = await service.record(caller, job)
    return timeline_view(await service.state.timeline(record.id))


@router.get("/jobs/{job}/metrics")
async def get_metrics(job: str, service: Service, caller: Viewer) -> http.SeriesView:
    """Show the kept training metrics, oldest first."""
    record = await service.record(caller, job)
    series = await service.state.series(record.id)
    return http.SeriesView(points=tuple(dict(point) for point in series))


@router.get("/jobs/{job}/explain")
async def explain_job(job: str, service: Service, caller: Viewer) -> http.ExplainView:
    """Say why a job is where it is, and what would start it."""
    return await service.explain(caller, job)


def home(caller: Caller) -> str:
    """Return the project of a caller who names none."""
    return "default" if caller.project == ALL_PROJECTS else caller.project


def _labels(query: Mapping[str, str]) -> dict[str, str]:
    labels = {
        name.removeprefix(LABEL): value for name, value in query.items() if name.startswith(LABEL)
    }
    for key in labels:
        if not is_name(key):
            raise BadRequest(f"{LABEL}{key[:80]} is not a label; keys are a-z, 0-9 and '-'")
    return labels
