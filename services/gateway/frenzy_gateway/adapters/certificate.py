"""The certificate of the API, which may be renewed while it is served."""

import datetime as dt
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509
from prometheus_client import CollectorRegistry, Gauge

from frenzy_shared.errors import Misconfigured

log = logging.getLogger(__name__)

_WARN_BEFORE: Final = dt.timedelta(days=14)


class ServedCertificate:
    """A TLS context whose chain and key follow their files; connections that exist go on.

    ``now`` tells the time by which the certificate ends.
    """

    def __init__(self, chain: Path, key: Path, now: Callable[[], dt.datetime]) -> None:
        """Load the files.

        Raises:
            Misconfigured: they cannot be used.
        """
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._chain, self._key, self._now = chain, key, now
        self._told: dt.date | None = None
        try:
            self._loaded = self._load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise Misconfigured(
                f"the certificate {chain} with the key {key} cannot be used: {error}",
                suggestions=("check FRENZY_HTTP_CERT and FRENZY_HTTP_KEY",),
            ) from None
        self._tell()

    @property
    def left_s(self) -> float:
        """Return for how many seconds it is still valid; negative: it has expired."""
        return (self._ends - self._now()).total_seconds()

    def register(self, registry: CollectorRegistry) -> None:
        """Show in metrics how long it is still valid."""
        gauge = Gauge(
            "frenzy_certificate_expiry_seconds",
            "Until the API's certificate expires; negative when it has",
            registry=registry,
        )
        gauge.set_function(lambda: self.left_s)

    async def look(self) -> None:
        """Load the files again when they have changed; warn of an end that is near, daily."""
        try:
            if self._changed_ns() != self._loaded:
                self._loaded = self._load()
                log.info("the API's certificate was renewed; it is valid until %s", self._ends)
        except (OSError, ValueError) as error:  # half written: the next look finds the rest
            log.warning("%s cannot be used, the old one is served on: %s", self._chain, error)
        self._tell()

    def _load(self) -> int:
        changed_ns = self._changed_ns()
        ends = x509.load_pem_x509_certificate(self._chain.read_bytes()).not_valid_after_utc
        # Tried elsewhere first: a key that does not fit would leave the context with half of it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._chain, self._key)
        self.context.load_cert_chain(self._chain, self._key)
        self._ends = ends
        return changed_ns

    def _changed_ns(self) -> int:
        return max(path.stat().st_mtime_ns for path in (self._chain, self._key))

    def _tell(self) -> None:
        today, near = self._now().date(), self.left_s < _WARN_BEFORE.total_seconds()
        if near and today != self._told:
            self._told = today
            how = "expires" if self.left_s > 0 else "expired"
            log.warning("the API's certificate %s %s at %s", self._chain, how, self._ends)
