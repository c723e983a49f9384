"""Fixtures of several of these tests."""

from __future__ import annotations

import pytest

from durable.log.log import Log
from durable.log.record import Record


@pytest.fixture
def read_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The log positions from which the log is read, as they are read."""
    found: list[int] = []
    read = Log.read

    async def noting(self: Log, position: int, limit_bytes: int) -> list[Record]:
        found.append(position)
        return await read(self, position, limit_bytes)

    monkeypatch.setattr(Log, "read", noting)
    return found
