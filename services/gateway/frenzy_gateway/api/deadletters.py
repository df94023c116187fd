"""Dead letters; for administrators of all projects only."""

from typing import Annotated

from fastapi import Path, Query

from frenzy_gateway.api.access import ClusterAdmin, Service, api_router
from frenzy_shared.messages import http

router = api_router("dead letters")

Letter = Annotated[int, Path(ge=1, le=2**53)]


@router.get("/admin/dlq")
async def list_dead_letters(
    service: Service,
    _: ClusterAdmin,
    *,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> http.DeadLetterList:
    """Show messages that a service gave up, oldest first."""
    return await service.dead_letters.list(after=after, limit=limit)


@router.post("/admin/dlq/{letter}:replay")
async def replay_dead_letter(
    letter: Letter, service: Service, caller: ClusterAdmin
) -> http.DeadLetterView:
    """Publish a letter's message where it came from, and remove the letter."""
    return await service.dead_letters.replay(caller, letter)


@router.post("/admin/dlq/{letter}:drop")
async def drop_dead_letter(
    letter: Letter, service: Service, caller: ClusterAdmin
) -> http.DeadLetterView:
    """Throw a letter away."""
    return await service.dead_letters.drop(caller, letter)
