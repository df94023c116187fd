"""Settings that every service shares, read from FRENZY_* environment variables."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from frenzy_shared.errors import Misconfigured

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


class ServiceSettings(BaseSettings):
    """Where the servers are and how this process reports. Secrets are in the URLs."""

    model_config = SettingsConfigDict(env_prefix="FRENZY_", frozen=True, extra="ignore")

    nats_url: SecretStr = SecretStr("nats://127.0.0.1:4222")
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    data_dir: Path = Path("/var/lib/frenzy")
    instance: str = ""  # "" = a random name; tells replicas apart
    log_level: str = "INFO"
    log_format: str = "json"  # json | text
    trace_file: Path | None = None  # spans as JSON lines
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0  # 0 = any free port, -> log
    metrics_host: str = "127.0.0.1"


class TimingSettings(ServiceSettings):
    """Time limits of the gang protocol and of node loss."""

    heartbeat_s: Seconds = 5.0
    suspect_after_s: Seconds = 20.0
    lost_after_s: Seconds = 60.0
    fence_after_s: Seconds = 300.0  # L: ranks die when no heartbeat was answered for so long
    fence_margin_s: Seconds = 60.0
    prepare_timeout_s: Seconds = 120.0
    go_timeout_s: Seconds = 60.0
    first_report_timeout_s: Seconds = 1800.0
    stop_grace_s: Seconds = 30.0
    backoff_base_s: Seconds = 10.0
    backoff_max_s: Seconds = 600.0


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
