"""Blobs: code and data by digest."""

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from frenzy_gateway.api.access import Node, Service, Submitter, api_router
from frenzy_gateway.api.body import receive
from frenzy_shared.errors import BlobMissing
from frenzy_shared.messages import http

router = api_router("blobs")

_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.put(
    "/blobs/{digest}",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
)
async def put_blob(digest: str, request: Request, service: Service, _: Submitter) -> http.BlobView:
    """Store the body under its digest; other content than the digest says is refused."""
    settings = service.settings
    chunks = receive(request, settings.max_blob_bytes, settings.receive_timeout_s)
    await service.blobs.put(chunks, expected=digest)
    return http.BlobView(digest=digest, size_bytes=await service.blobs.size(digest))


@router.head("/blobs/{digest}")
async def head_blob(digest: str, service: Service, _: Node) -> Response:
    """Tell whether a blob is stored, and its size."""
    return Response(headers=await _headers(digest, service))


@router.get("/blobs/{digest}", response_class=Response, responses={200: {"content": _BYTES}})
async def get_blob(digest: str, service: Service, _: Node) -> StreamingResponse:
    """Send a blob."""
    return StreamingResponse(
        service.blobs.open(digest),
        media_type="application/octet-stream",
        headers=await _headers(digest, service),
    )


async def _headers(digest: str, service: Service) -> dict[str, str]:
    if not await service.blobs.exists(digest):
        raise BlobMissing(f"no blob {digest}")
    size = await service.blobs.size(digest)
    return {"Content-Length": str(size), "ETag": f'"{digest}"', "Content-Disposition": "attachment"}
