"""Settings of the gateway, read from FRENZY_* environment variables."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from frenzy_shared.addresses import is_loopback
from frenzy_shared.settings import Seconds, ServiceSettings
from frenzy_shared.units import GIB, MIB


class GatewaySettings(ServiceSettings):
    """Where the API listens, and its limits.

    ``admin_token`` (``frz_<id>_<secret>``) is stored at start as an administrator of all
    projects: the way to the first token of a new cluster.
    """

    http_host: str = "127.0.0.1"
    """Address that the API listens on."""
    http_port: Annotated[int, Field(ge=0, le=65_535)] = 8642
    """Port of the API; 0: any free one, which the log names."""
    http_cert: Path | None = None
    """PEM of the API's certificate and its chain; empty: no TLS, which is for loopback only."""
    http_key: Path | None = None
    """PEM of the certificate's key."""
    http_plain: bool = False
    """Serve without TLS off loopback: behind a proxy that ends TLS on this machine's network."""
    bus_users: Path | None = None
    """File of those who may use the bus, where the gateway runs beside nats-server; it enrols."""
    bus_public_url: str = ""
    """Address of nats-server as other machines reach it; given to nodes that enrol."""
    authority: Path | None = None
    """PEM of the cluster's certificate authority, which nodes that enrol may trust."""
    blobs: str = ""
    """Folder of bundles and data; empty: `<data_dir>/blobs`."""
    store_log: Path | None = None
    """Log of the store's server, where that runs on this machine: it names a full disk."""
    admin_token: SecretStr | None = None
    """`frz_<id>_<secret>`, stored at start as an administrator of all projects."""
    secrets_key: Path | None = None
    """File (mode 0600) with the keys that seal secrets, 64 hex digits a line: the first seals, all
    open. Empty: this gateway keeps no secrets. The same for all gateways.
    """
    marp_timeout_s: Seconds = 2.0
    """Budget for asking MARP before a job is accepted."""
    explain_timeout_s: Seconds = 3.0
    """Budget for asking the scheduler, which looks ahead before it answers."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = MIB
    """Largest JSON body."""
    max_blob_bytes: Annotated[int, Field(ge=1)] = 2 * GIB
    """Largest bundle or data set."""
    max_log_bytes: Annotated[int, Field(ge=1024)] = 64 * MIB
    """Largest answer that holds a whole log."""
    receive_timeout_s: Seconds = 30.0
    """Longest silence while a client sends a body."""
    max_followers: Annotated[int, Field(ge=1)] = 512
    """Most open event streams; each reads the bus."""
    keep_alive_s: Seconds = 15.0
    """Between comments on an idle event stream."""
    submit_rate: Annotated[float, Field(ge=0, le=10_000)] = 20.0
    """Jobs a second that each project may submit or plan through this gateway; more get 429.
    0: any.
    """
    submit_burst: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Jobs that a project may submit at once after a rest."""
    submit_slots: Annotated[int, Field(ge=1, le=4096)] = 8
    """Submissions and dry runs of each project that are worked on at a time; others wait."""
    max_outbox_lag: Annotated[int, Field(ge=1)] = 10_000
    """Most unpublished outbox entries before submissions get 503."""
    max_memory_ratio: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Used share of the store's memory above which submissions get 503."""
    retention_blobs_s: Annotated[float, Field(ge=60)] = 86_400.0
    """Blobs that no job names go when nobody asked for them for so long."""
    collect_s: Seconds = 3600.0
    """Between two looks at blobs; what two looks in a row found unneeded goes."""
    drain_s: Annotated[float, Field(ge=0, le=5)] = 0.5
    """At a stop: how long to serve on while readiness already says no."""

    @model_validator(mode="after")
    def _no_plain_text_off_this_machine(self) -> Self:
        if (self.http_cert is None) != (self.http_key is None):
            raise ValueError("FRENZY_HTTP_CERT and FRENZY_HTTP_KEY go together")
        if self.http_cert is None and not self.http_plain and not is_loopback(self.http_host):
            raise ValueError(
                f"FRENZY_HTTP_HOST {self.http_host} is not loopback, and tokens must not travel in "
                "the clear: give FRENZY_HTTP_CERT and FRENZY_HTTP_KEY, or FRENZY_HTTP_PLAIN=true "
                "behind a proxy that speaks TLS"
            )
        return self

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """Return the files of chain and key; None without TLS."""
        if self.http_cert is None or self.http_key is None:
            return None
        return self.http_cert, self.http_key

    @property
    def blob_location(self) -> str:
        """Return where blobs are kept."""
        return self.blobs or str(Path(self.data_dir) / "blobs")
