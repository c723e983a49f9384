"""What a vhost needs of its log, as a Protocol (`durable.log.log.Log` is one), and the estimate of how much
room a record of messages takes in it."""

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
"""Length field of each message in its batch."""


class Store(Protocol):
    @property
    def end(self) -> int:
        """The log position that the next record gets."""

    @property
    def durable_end(self) -> int:
        """All records before this log position survive a power cut."""

    @property
    def append_bytes_max(self) -> int:
        """Bytes that an empty segment can take in one append."""

    @property
    def reserve_bytes(self) -> int:
        """Bytes for settlements and definitions that stay available on a full disk."""

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        """Append all drafts and return their log positions. Raises StoreBusy, StoreFull, StoreFailed,
        StoreClosed or TooLarge; then none was appended."""

    def hurry(self) -> None:
        """A task waits for what was appended with `hurry=False`: commit it soon."""

    def refer(self, position: int, count: int, size_bytes: int) -> None: ...
    def release(self, position: int, count: int, size_bytes: int) -> None: ...
    def refer_each(self, positions: range, size_bytes: int) -> None: ...
    def release_each(self, positions: range, size_bytes: int) -> None: ...
    def in_same_segment(self, low: int, high: int) -> bool:
        """Whether all records from `low` to `high` are in one segment, so that `refer` to one of them is as
        good as to any other."""

    def tally(self) -> Tally:
        """Return an empty tally, to count records that are to be released."""


def append_twice(store: Store, drafts: Sequence[Draft]) -> range:
    """Append records whose contents are nowhere else in the log, and a copy right behind them: otherwise one
    damaged record would cost what it declares, with all its messages.

    The copy takes nothing from the reserve: on a full disk one copy has to do.

    Raises:
        TooLarge: both together are more than an empty segment can take. Nothing was appended.
        StoreBusy, StoreFull, StoreFailed, StoreClosed: nothing was appended.
    """
    try:
        return store.append_nowait([*drafts, *(one._replace(patient=True) for one in drafts)])
    except StoreFull:
        return store.append_nowait(drafts)


def refer_all(store: Store, records: Records | Block) -> None:
    """Tell the log that each of these records is needed by one more user."""
    _tell(store, records, store.refer_each, store.refer)


def release_all(store: Store, records: Records | Block) -> None:
    """Tell the log that one user of each of these records no longer needs it."""
    _tell(store, records, store.release_each, store.release)


def count_all(store: Store, records: Records | Block, tally: Tally) -> None:
    """Count these records in `tally` as released once a later record is durable; until then the log still
    counts them as referred to."""
    _tell(store, records, tally.count_each, tally.count)


def _tell(
    store: Store, records: Records | Block, each: Callable[[range, int], None],
    together: Callable[[int, int, int], None],
) -> None:  # fmt: skip
    if isinstance(records, Records):
        positions, messages, size_bytes = records
        each(positions, record_bytes(messages, size_bytes))
    elif store.in_same_segment(records.position_min, records.position_max):
        size_bytes = record_bytes(records.messages, records.size_bytes, records=records.runs)
        together(records.position_min, records.runs, size_bytes)
    else:
        for part in records.parts():
            _tell(store, part, each, together)


def record_bytes(messages: int, bodies_bytes: int, *, records: int = 1) -> int:
    """Return the bytes that `refer` and `release` count for a record: a lower bound, from what a lane knows
    of it. With `records` over 1, for so many records that have these messages and bodies together.

    Keys, properties, headers and what surrounds each batch of a group are left out. A release has to count
    exactly what was counted when the record was referred to, even if a restart came between, so the number
    depends on nothing else.
    """
    each = HEADER_BYTES + TARGET_BYTES + BATCH_BYTES
    return each * records + LENGTH_BYTES * messages + bodies_bytes
