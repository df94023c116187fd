"""What keeps the cluster itself right; for administrators only."""

from frenzy_gateway.api.access import Admin, Service, api_router
from frenzy_shared.messages import v1

router = api_router("admin")


@router.post("/admin/reconcile")
async def reconcile(service: Service, caller: Admin, *, apply: bool = False) -> v1.Reconciliation:
    """Show what the store says wrongly in SAFE MODE; with ``apply`` put it right and leave it."""
    return await service.operations.reconcile(caller, apply=apply)
