"""Choose the blob store that a setting names."""

from pathlib import Path

from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.blobs.http import HttpBlobStore
from frenzy_shared.blobs.port import BlobStore
from frenzy_shared.errors import Misconfigured


def open_blob_store(location: str, token: str = "") -> BlobStore:
    """Return the store at a directory path or at a gateway's ``http(s)://`` URL.

    Raises:
        Misconfigured: the location is neither.
    """
    if location.startswith(("http://", "https://")):
        return HttpBlobStore(location, token)
    path = Path(location.removeprefix("file://"))
    if "://" in location.removeprefix("file://") or not path.is_absolute():
        raise Misconfigured(
            f"blob store {location!r} is neither an absolute path nor an http(s) URL"
        )
    return DirectoryBlobStore(path)
