"""Settings that every service shares, read from FRENZY_* environment variables."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from frenzy_shared.errors import Misconfigured

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


class ServiceSettings(BaseSettings):
    """Where the servers are and how this process reports. Secrets are in the URLs."""

    model_config = SettingsConfigDict(
        env_prefix="FRENZY_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    nats_url: SecretStr = SecretStr("nats://127.0.0.1:4222")
    """Address of nats-server, with its token where it has one."""
    nats_nkey: Path | None = None
    """File with the seed of this process's nkey, where the server knows it by that."""
    nats_ca: Path | None = None
    """Certificates that nats-server's must be signed by, where it speaks TLS."""
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """Address of Valkey or Redis, with its password."""
    data_dir: Path = Path("/var/lib/frenzy")
    """Folder of this process."""
    instance: str = ""
    """Tells replicas apart; empty: a random name."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    log_format: str = "json"
    """`json` or `text`."""
    trace_file: Path | None = None
    """File that spans are appended to, as JSON lines."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port of /metrics; 0: any free one, which the log names."""
    metrics_host: str = "127.0.0.1"
    """Address of /metrics."""


class TimingSettings(ServiceSettings):
    """Time limits of the gang protocol and of node loss."""

    heartbeat_s: Seconds = 5.0
    """Between two heartbeats of a node."""
    suspect_after_s: Seconds = 20.0
    """Silence after which a node gets no new work."""
    lost_after_s: Seconds = 60.0
    """Silence after which a node counts as lost."""
    fence_after_s: Seconds = 300.0
    """Ranks end when no heartbeat of their node was answered for so long."""
    fence_margin_s: Seconds = 60.0
    """How long after that a lost job may start elsewhere."""
    prepare_timeout_s: Seconds = 120.0
    """For every node to prepare a gang."""
    go_timeout_s: Seconds = 60.0
    """For every node to start its ranks."""
    first_report_timeout_s: Seconds = 1800.0
    """For the first training step to be reported."""
    stop_grace_s: Seconds = 30.0
    """Between SIGTERM and SIGKILL: time to save a checkpoint."""
    backoff_base_s: Seconds = 10.0
    """Wait after a first failure; doubled for each further one."""
    backoff_max_s: Seconds = 600.0
    """Longest wait after failures."""


def load(kind: type[Any]) -> Any:  # noqa: ANN401 - returns a ``kind``
    """Read settings of class ``kind`` from the environment.

    Raises:
        Misconfigured: naming every wrong variable and why.
    """
    try:
        return kind()
    except ValidationError as error:
        wrong = "; ".join(
            f"FRENZY_{'_'.join(str(part) for part in item['loc']).upper()}: {item['msg']}"
            for item in error.errors()
        )
        raise Misconfigured(f"bad environment: {wrong}") from None
