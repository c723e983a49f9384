"""Times as text, and as microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US, LAST_US = (
    (one.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    for one in (datetime.min, datetime.max)
)
"""Of a calendar, which has the years 1 to 9999."""


def read_time(text: str) -> datetime:
    """Of ISO 8601, as 2026-11-21T20:15 or 2026-11-21T20:15:00.5+01:00; UTC unless it has a zone.

    Raises ValueError.
    """
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def write_time(time: datetime, timespec: str = "microseconds") -> str:
    """A time in UTC as every command prints it: 2026-11-21T20:15:00.500000Z."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def since_epoch_us(time: datetime) -> int:
    """Of one with a zone; exact, and of all that a calendar has."""
    return (time - EPOCH) // timedelta(microseconds=1)


def time_at(us: int) -> datetime:
    """In UTC, so many us after 1970; the nearest that a calendar has, for a peer may say any number."""
    return EPOCH + timedelta(microseconds=min(max(us, FIRST_US), LAST_US))
