"""Predicted times in words: how long from now, as likely as not, and in 9 of 10 cases."""

from datetime import UTC, datetime

from frenzy_shared.messages.answers import Basis, Eta, TimeBand
from frenzy_shared.units import format_duration


def sentence(eta: Eta, basis: Basis | None, now: datetime | None = None) -> str:
    """Return ``starts in ~12 min (p90 18 min), done in ~40 min (p90 1.1 h)``."""
    moment = now or datetime.now(UTC)
    parts = [] if eta.start is None else [f"starts {_phrase(eta.start, basis, moment)}"]
    return ", ".join([*parts, f"done {_phrase(eta.end, basis, moment)}"])


def cell(band: TimeBand | None, basis: Basis | None, now: datetime | None = None) -> str | None:
    """Return ``~12 min (p90 18 min)`` for a table; None for no band."""
    return None if band is None else _words(band, basis, now or datetime.now(UTC))


def foundation(basis: Basis) -> str:
    """Say what the times rest on."""
    futures = "one possible future" if basis.futures == 1 else f"{basis.futures} possible futures"
    text = f"times are predicted from {futures} of the queue"
    if basis.reaches is not None:
        text += f"; some were computed only until {basis.reaches:%Y-%m-%d %H:%M} UTC"
    return text


def _phrase(band: TimeBand, basis: Basis | None, now: datetime) -> str:
    words = _words(band, basis, now)
    return f"in {words}" if words.startswith("~") else words


def _words(band: TimeBand, basis: Basis | None, now: datetime) -> str:
    reaches = basis.reaches if basis is not None else None
    beyond = "?" if reaches is None else f"> {_until(reaches, now)}"
    if band.p50 is None:
        return f"later than {beyond.removeprefix('> ')}" if reaches else "later than predicted"
    p90 = beyond if band.p90 is None else _until(band.p90, now)
    soon = "any moment" if band.p50 <= now else f"~{_until(band.p50, now)}"
    return f"{soon} (p90 {p90})"


def _until(moment: datetime, now: datetime) -> str:
    return format_duration(max((moment - now).total_seconds(), 0.0))
