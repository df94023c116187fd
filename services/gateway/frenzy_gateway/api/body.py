"""Receive request bodies from clients that may be slow, wrong or hostile."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import ValidationError

from frenzy_gateway.jsonbody import parse_json
from frenzy_gateway.problems import RequestTimeout, UnsupportedMediaType
from frenzy_shared.errors import FieldProblem, InvalidSpec, PayloadTooLarge
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.estimate import EstimateRequest
from frenzy_shared.messages.spec import JobSpec, parse_spec
from frenzy_shared.messages.wording import invalid_spec, pointer_to
from frenzy_shared.units import MIB

_DISCARD_BYTES: Final = 16 * MIB
_DISCARD_S: Final = 2.0

W = TypeVar("W", bound=Wire)


async def read_spec(request: Request) -> JobSpec:
    """Read a job specification; every wrong field is named."""
    return parse_spec(await _read_json(request))


async def read_estimate(request: Request) -> EstimateRequest:
    """Read what an estimate is asked for; every wrong field is named."""
    try:
        return EstimateRequest.model_validate(await _read_json(request))
    except ValidationError as error:
        raise invalid_spec(error, EstimateRequest) from None


async def read_model(request: Request, kind: type[W]) -> W:
    """Read another JSON body; every wrong field is named."""
    document = await _read_json(request)
    unknown = set(document) - set(kind.model_fields) if isinstance(document, dict) else ()
    if unknown:
        known = ", ".join(kind.model_fields)
        problems = tuple(
            FieldProblem(pointer=pointer_to(name), detail=f"unknown key; known: {known}")
            for name in sorted(unknown)
        )
        raise InvalidSpec(f"unknown keys: {', '.join(sorted(unknown))}", problems=problems)
    try:
        return kind.model_validate_json(json.dumps(document), strict=True)  # lists become tuples
    except ValidationError as error:
        raise invalid_spec(error, kind) from None


async def receive(request: Request, limit: int, silence_s: float) -> AsyncGenerator[bytes, None]:
    """Yield the body's chunks.

    Raises:
        PayloadTooLarge: more than ``limit`` bytes are announced or come.
        RequestTimeout: nothing came for ``silence_s`` seconds.
        UnsupportedMediaType: the body is compressed.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed request bodies are not accepted")
    announced = request.headers.get("content-length", "")
    received = 0
    async with aclosing(_stream(request)) as chunks:
        if announced.isdecimal() and int(announced) > limit:
            await _discard(chunks)
            raise _too_large(limit)
        while (chunk := await _next(chunks, silence_s)) is not None:
            received += len(chunk)
            if received > limit:
                await _discard(chunks)
                raise _too_large(limit)
            yield chunk


def json_request(kind: type[Wire]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that is read by hand."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _read_json(request: Request) -> Any:  # noqa: ANN401 - any JSON value
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType(
            f"send the body as application/json, not {media_type[:80] or 'without a type'}",
            suggestions=("set the header Content-Type: application/json",),
        )
    settings = request.app.state.service.settings
    body = bytearray()
    chunks = receive(request, settings.max_body_bytes, settings.receive_timeout_s)
    async with aclosing(chunks):
        async for chunk in chunks:
            body += chunk
    return parse_json(bytes(body))


async def _stream(request: Request) -> AsyncGenerator[bytes, None]:
    async for chunk in request.stream():
        yield chunk


async def _next(chunks: AsyncGenerator[bytes, None], silence_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(silence_s):
            return await anext(chunks, None)
    except TimeoutError:
        raise RequestTimeout(f"nothing of the body came for {silence_s:g} s") from None


async def _discard(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read on for a moment.

    Closing a connection with unread bytes resets it, and the client would never see the answer.
    """
    discarded = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            async for chunk in chunks:
                discarded += len(chunk)
                if discarded > _DISCARD_BYTES:
                    return


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than the limit of {limit} bytes")
