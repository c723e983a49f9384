"""A task that reads: yields its ranges one after the other as Arrow batches, and handles data that is damaged
or gone."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

from durable.log.disk import File
from durable.log.header import SEGMENT_HEADER_BYTES, decode_segment_header
from durable.log.record import store_seed
from durable.log.scan import Damaged

from ..errors import CaptureCut, CaptureDamaged, DataLost
from .columns import RowSpec, Tables
from .decryption import DEFAULT_KEY_FILES, Decryption, KeyFiles
from .elsewhere import Replacements
from .options import FAIL, KEEP
from .plan import ByteRange, Work
from .segment import chunks
from .stored import segment_file

logger = logging.getLogger("spark.capture")
KEPT_BYTES_MAX = 1 << 20
"""How much of a damaged stretch is kept in a row of `damaged=keep`."""


def read(
    work: Work, spec: RowSpec, *, damaged: str, fail_on_data_loss: bool,
    keys: KeyFiles = DEFAULT_KEY_FILES,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield all rows of one task.

    Raises:
        StoreKeyMissing, StoreKeyWrong, KeysUnusable: it is encrypted, see decryption.py.
        CaptureDamaged, CaptureCut: with damaged=fail.
        DataLost: with fail_on_data_loss, if a segment has been freed or cut since planning, or belongs to
            another store now.
        SegmentUnreadable: the disk does not return a segment.
        NewerFormat: a valid record of a later version.
    """
    if not work.ranges:
        return
    decryption = Decryption(Path(work.ranges[0].path).parent, keys)  # All are of one log.
    tables, replacements = Tables(spec, work.lanes), Replacements(work.lanes, keys)
    ranges = deque(work.ranges)
    while ranges:
        one = ranges.popleft()
        has_begun = False
        try:
            with _open_range(one) as file:
                has_begun = True
                yield from _read_range(file, one, tables, damaged, decryption)
        except DataLost as error:
            if fail_on_data_loss:
                raise
            # If reading had begun, the segment was cut or became a spare, and some rows are out already.
            carried = [] if has_begun else replacements.find(one)
            left = " except what compaction moved elsewhere" if carried else ""
            logger.warning("%s: %d bytes skipped%s", error.what, one.size_bytes, left)
            ranges.extendleft(reversed(carried))


@contextmanager
def _open_range(one: ByteRange) -> Iterator[File]:
    """Open the segment of a range. Raises DataLost if it has been freed, or belongs to another store now."""
    name = Path(one.path).name
    with ExitStack() as stack:
        try:
            file = stack.enter_context(segment_file(one.path))
        except FileNotFoundError:
            raise DataLost(
                f"{name} was freed before it was read (retention or compaction)"
            ) from None
        header = decode_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0), name)
        if header is not None and store_seed(header.store_id) != one.seed:
            raise DataLost(f"{name} belongs to another store than when this was planned")
        yield file


def _read_range(
    file: File, one: ByteRange, tables: Tables, damaged: str, decryption: Decryption
) -> Iterator[pa.RecordBatch]:
    stretches = size_bytes = 0
    for found in _scan_range(file, one, tables, decryption):
        if not isinstance(found, Damaged):
            yield found
            continue
        if damaged == FAIL and one.missing:
            raise CaptureCut(one.path, found.at, one.start, one.end)
        if damaged == FAIL:
            raise CaptureDamaged(one.path, found.at, found.end - found.at)
        if not one.reports:
            continue
        stretches, size_bytes = stretches + 1, size_bytes + found.end - found.at
        if damaged == KEEP:
            data = file.pread(min(found.end - found.at, KEPT_BYTES_MAX), found.at)
            yield tables.damaged_row(data)
    if stretches:
        logger.warning("%s: %d damaged parts, %d bytes", one.path, stretches, size_bytes)


def _scan_range(
    file: File, one: ByteRange, tables: Tables, decryption: Decryption
) -> Iterator[pa.RecordBatch | Damaged]:
    if one.missing:
        yield Damaged(one.at, one.end_at)
        return
    for found in chunks(file, one, decryption.decrypt):
        if isinstance(found, Damaged):
            yield found
        else:
            yield from tables.batches(found, one.carried)
