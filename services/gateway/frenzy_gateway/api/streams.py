"""A job's logs and events: whole, or as server-sent events that follow it to its end."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from frenzy_gateway.api.access import Service, Viewer, api_router
from frenzy_gateway.feed import LogCursor, LogFeed
from frenzy_gateway.loglines import LogFilter, render
from frenzy_gateway.reading import parse_sequence
from frenzy_gateway.service import GatewayService
from frenzy_gateway.sse import Events, EventStreamResponse, Followers
from frenzy_shared.messages.envelope import CloudEvent

router = api_router("jobs")

_SSE = "text/event-stream"
_STREAM_CONTENT = {_SSE: {"schema": {"type": "string"}}}


@router.get(
    "/jobs/{job}/logs",
    response_class=PlainTextResponse,
    responses={200: {"description": "Lines, or events log, gap, end", "content": _STREAM_CONTENT}},
)
async def get_logs(
    request: Request,
    job: str,
    service: Service,
    caller: Viewer,
    *,
    rank: Annotated[int | None, Query(ge=0)] = None,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    tail: Annotated[int | None, Query(ge=0, le=100_000)] = None,
) -> Response:
    """Show a job's log as text; with ``Accept: text/event-stream`` follow it.

    ``tail`` is the number of last lines of each rank. Without ``rank`` each line of the text
    starts with ``[<rank>] ``, or with ``[<attempt>.<rank>] `` when several attempts wrote.
    """
    record = await service.record(caller, job)
    wanted = LogFilter(attempt=attempt, rank=rank)
    reader = service.reader
    if not _follows(request):
        table = await reader.log(record, wanted, tail)
        several = table.attempts > 1
        lines = render(table.merged(), name_ranks=rank is None, name_attempts=several)
        return PlainTextResponse("".join(lines))
    _followers(request).check()
    last_id = request.headers.get("last-event-id")
    feed = LogFeed(
        wanted=wanted,
        after=LogCursor.parse(last_id) if last_id else None,
        tail=tail,
        history_end=await reader.history_end(record, wanted),
    )
    return _stream(request, service, reader.follow_log(record, feed))


@router.get(
    "/jobs/{job}/events",
    response_model=list[CloudEvent],
    responses={200: {"description": "CloudEvents, oldest first", "content": _STREAM_CONTENT}},
)
async def get_events(request: Request, job: str, service: Service, caller: Viewer) -> Response:
    """Show a job's events; with ``Accept: text/event-stream`` follow them."""
    record = await service.record(caller, job)
    reader = service.reader
    if not _follows(request):
        found = await reader.events(record)
        return JSONResponse([told.model_dump(mode="json") for told in found])
    _followers(request).check()
    last_id = request.headers.get("last-event-id")
    after = parse_sequence(last_id) if last_id else 0
    reader.require_bus()
    return _stream(request, service, reader.follow_events(record, after))


def _follows(request: Request) -> bool:
    return _SSE in request.headers.get("accept", "").lower()


def _followers(request: Request) -> Followers:
    followers: Followers = request.app.state.followers
    return followers


def _stream(request: Request, service: GatewayService, events: Events) -> EventStreamResponse:
    return EventStreamResponse(
        events,
        followers=_followers(request),
        clock=service.clock,
        keep_alive_s=service.settings.keep_alive_s,
    )
