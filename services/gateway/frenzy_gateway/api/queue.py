"""The queue: who waits, why, and until when."""

from typing import Annotated

from fastapi import Query

from frenzy_gateway.api.access import Service, Viewer, api_router
from frenzy_shared.messages import http

router = api_router("queue")


@router.get("/queue")
async def show_queue(
    service: Service,
    caller: Viewer,
    *,
    project: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> http.QueueView:
    """Show the first waiting jobs in the order of the policy, with reasons and predicted times.

    Positions count over all projects, also where only one is shown.
    """
    return await service.queue(caller, project, limit)
