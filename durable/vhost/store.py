"""What a vhost needs of its log, as a Protocol; `durable.log.log.Log` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..log.record import Draft


class Store(Protocol):
    @property
    def end(self) -> int:
        """The log position that the next record gets."""

    @property
    def durable_end(self) -> int:
        """All records before this log position survive a power cut."""

    @property
    def append_bytes_max(self) -> int:
        """What an empty segment takes at once."""

    def append_nowait(self, drafts: Sequence[Draft]) -> range:
        """Log positions of all of them, or StoreBusy, StoreFull, StoreFailed, StoreClosed, TooLarge."""

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None: ...
    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None: ...
