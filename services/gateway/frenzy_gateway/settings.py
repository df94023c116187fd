"""Settings of the gateway, read from FRENZY_* environment variables."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from frenzy_shared.settings import Seconds, ServiceSettings
from frenzy_shared.units import GIB, MIB


class GatewaySettings(ServiceSettings):
    """Where the API listens, and its limits.

    ``admin_token`` (``frz_<id>_<secret>``) is stored at start as an administrator of all
    projects: the way to the first token of a new cluster.
    """

    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65_535)] = 8080  # 0 = any free port, -> log
    blobs: str = ""  # a directory; "" = <data_dir>/blobs
    admin_token: SecretStr | None = None
    marp_timeout_s: Seconds = 2.0  # budget for asking MARP before a job is accepted
    explain_timeout_s: Seconds = 1.0
    max_body_bytes: Annotated[int, Field(ge=1024)] = MIB
    max_blob_bytes: Annotated[int, Field(ge=1)] = 2 * GIB
    max_log_bytes: Annotated[int, Field(ge=1024)] = 64 * MIB  # of one whole-log answer
    receive_timeout_s: Seconds = 30.0  # longest silence while a client sends a body
    max_followers: Annotated[int, Field(ge=1)] = 512  # open event streams; each reads the bus
    keep_alive_s: Seconds = 15.0  # between comments on an idle event stream
    max_outbox_lag: Annotated[int, Field(ge=1)] = 10_000  # unpublished entries, then 503
    max_memory_ratio: Annotated[float, Field(gt=0, le=1)] = 0.9  # of the store, then 503
    drain_s: Annotated[float, Field(ge=0, le=5)] = 0.5  # not ready, still serving, before closing

    @property
    def blob_location(self) -> str:
        """Return where blobs are kept."""
        return self.blobs or str(Path(self.data_dir) / "blobs")
