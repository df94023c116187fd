"""Choose the blob store that a setting names."""

from pathlib import Path

from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.blobs.http import HttpBlobStore
from frenzy_shared.blobs.port import BlobStore
from frenzy_shared.errors import Misconfigured


def open_blob_store(location: str, token: str = "", ca: Path | None = None) -> BlobStore:
    """Return the store at a directory path or at a gateway's ``http(s)://`` URL.

    Raises:
        Misconfigured: the location is neither, or the authority's certificate cannot be read.
    """
    if location.startswith(("http://", "https://")):
        try:
            return HttpBlobStore(location, token, ca=ca)
        except OSError as error:  # ssl.SSLError is one
            raise Misconfigured(f"FRENZY_BLOBS_CA {ca} cannot be used: {error}") from None
    path = Path(location.removeprefix("file://"))
    if "://" in location.removeprefix("file://") or not path.is_absolute():
        raise Misconfigured(
            f"blob store {location!r} is neither an absolute path nor an http(s) URL"
        )
    return DirectoryBlobStore(path)
