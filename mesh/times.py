"""Conversion of times: text, datetime, and microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US, LAST_US = (
    (one.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    for one in (datetime.min, datetime.max)
)
"""The range of datetime, years 1 to 9999, in microseconds."""


def parse_time(text: str) -> datetime:
    """Parse ISO 8601, as 2026-11-21T20:15 or 2026-11-21T20:15:00.5+01:00; UTC if it has no time zone.

    Raises ValueError.
    """
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def format_time(time: datetime, timespec: str = "microseconds") -> str:
    """Format a time in UTC as every command prints it: 2026-11-21T20:15:00.500000Z."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def since_epoch_us(time: datetime) -> int:
    """Convert a time that has a time zone; exact over the whole range of datetime."""
    return (time - EPOCH) // timedelta(microseconds=1)


def time_at(us: int) -> datetime:
    """Return the time in UTC, `us` microseconds after 1970, limited to datetime's range: peers may send any number."""
    return EPOCH + timedelta(microseconds=min(max(us, FIRST_US), LAST_US))
