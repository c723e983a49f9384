"""What a vhost needs of its log, as a Protocol; `durable.log.log.Log` is one. And how much room in it a
record of messages takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mesh.protocol.batch import HEADER_BYTES as BATCH_BYTES

from ..errors import StoreFull
from ..log.record import HEADER_BYTES, TARGET_BYTES, Draft
from ..log.segments import Tally
from ..queues.block import Block
from ..queues.runs import Records

LENGTH_BYTES = 4
"""Of each message, in its batch."""


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

    @property
    def reserve_bytes(self) -> int:
        """Of settlements and definitions, for which there is room on a full disk."""

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        """Log positions of all of them, or StoreBusy, StoreFull, StoreFailed, StoreClosed, TooLarge."""

    def hurry(self) -> None:
        """Somebody waits for what was appended with `hurry=False`."""

    def refer(self, position: int, count: int, size_bytes: int) -> None: ...
    def release(self, position: int, count: int, size_bytes: int) -> None: ...
    def refer_each(self, positions: range, size_bytes: int) -> None: ...
    def release_each(self, positions: range, size_bytes: int) -> None: ...
    def are_together(self, low: int, high: int) -> bool:
        """Whether what is true of one of two records is true of all between them: see `refer`."""

    def tally(self) -> Tally:
        """Of what is to be released: nothing so far."""


def append_twice(store: Store, drafts: Sequence[Draft]) -> range:
    """Append what nothing else in the log says, and all of it again right behind: one damaged record
    would cost what it declares with all its messages.

    The copy takes nothing from the reserve: on a full disk one has to do.

    Raises:
        TooLarge: both together are more than an empty segment takes. Nothing was appended.
        StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was appended.
    """
    try:
        return store.append_nowait([*drafts, *(one._replace(patient=True) for one in drafts)])
    except StoreFull:
        return store.append_nowait(drafts)


def refer_all(store: Store, records: Records | Block) -> None:
    """Something needs each of these records."""
    _tell(store, records, store.refer_each, store.refer)


def release_all(store: Store, records: Records | Block) -> None:
    """It does not any more."""
    _tell(store, records, store.release_each, store.release)


def count_all(store: Store, records: Records | Block, tally: Tally) -> None:
    """It will need them no more once that is durable: told to the tally alone, they stay referred to."""
    _tell(store, records, tally.count_each, tally.count)


def _tell(
    store: Store, records: Records | Block, each: Callable[[range, int], None],
    together: Callable[[int, int, int], None],
) -> None:  # fmt: skip
    if isinstance(records, Records):
        positions, messages, size_bytes = records
        each(positions, record_bytes(messages, size_bytes))
    elif store.are_together(records.low, records.high):
        size_bytes = record_bytes(records.messages, records.size_bytes, records=records.runs)
        together(records.low, records.runs, size_bytes)
    else:
        for part in records.parts():
            _tell(store, part, each, together)


def record_bytes(messages: int, bodies_bytes: int, *, records: int = 1) -> int:
    """What a record takes in its segment, for `refer` and `release`: at least, by what a lane knows of it;
    or so many of them, with all their messages and bodies.

    Keys, properties, headers, and what stands around each batch of a group, are left out. Both calls have to say the same, on both sides of a
    restart, so it depends on nothing else.
    """
    each = HEADER_BYTES + TARGET_BYTES + BATCH_BYTES
    return each * records + LENGTH_BYTES * messages + bodies_bytes
