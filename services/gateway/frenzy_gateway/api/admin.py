"""What keeps the cluster itself right; for administrators of all projects only."""

from typing import Annotated, Final

from fastapi import Query, Response

from frenzy_gateway.api.access import ClusterAdmin, Service, api_router
from frenzy_shared.messages import v1

router = api_router("admin")
JSON: Final = "application/json"


@router.post("/admin/reconcile")
async def reconcile(
    service: Service,
    caller: ClusterAdmin,
    *,
    apply: bool = False,
    dead: Annotated[tuple[str, ...], Query(max_length=1000)] = (),
) -> v1.Reconciliation:
    """Show what the store says wrongly in SAFE MODE; with ``apply`` put it right and leave it.

    ``dead`` names silent nodes that are switched off: what they ran starts elsewhere.
    """
    return await service.operations.reconcile(caller, apply=apply, dead=dead)


@router.post("/admin/record", response_class=Response, responses={200: {"content": {JSON: {}}}})
async def record(
    service: Service, caller: ClusterAdmin, *, cycles: Annotated[int, Query(ge=1, le=100)] = 1
) -> Response:
    """Return the last scheduling cycles, input and decisions, for ``frenzy admin replay``."""
    return Response(await service.operations.record(caller, cycles), media_type=JSON)
