"""Reading on from a log position while the log is written."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from .reader import READ_BYTES
from .record import Record


class Followed(Protocol):
    """What it needs of a `Log`."""

    @property
    def durable_end(self) -> int: ...
    async def read(self, position: int, limit_bytes: int) -> list[Record]: ...
    async def wait_durable(self, position: int) -> bool: ...


class Follower:
    """Iterates over the records of a log while it is being written; ends when the log is closed.

    Raises:
        StoreFailed: after the last durable record, when the disk failed.
    """

    def __init__(self, log: Followed, position: int) -> None:
        self._log, self._position = log, position
        self._records: deque[Record] = deque()

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Record:
        log = self._log
        while not self._records:
            end = log.durable_end
            self._records.extend(await log.read(self._position, READ_BYTES))
            if not self._records and not await log.wait_durable(end):
                raise StopAsyncIteration
        record = self._records.popleft()
        self._position = record.position + 1
        return record
