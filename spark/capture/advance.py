"""How far one trigger of a streaming query goes: whole records, up to a number of rows or bytes."""

from __future__ import annotations

import numpy as np

from durable.log.scan import Damaged

from .gather import Ints
from .plan import ByteRange, LaneTable, Selected, ranges
from .runs import is_carried
from .stored import segment_file
from .walk import BLOCK_BYTES, Block, walk


def advance(selected: Selected, *, rows_max: int | None, bytes_max: int | None) -> int:
    """Return the log position before which no more than this is to be read; at least one record is.

    Raises:
        FileNotFoundError: a segment has been freed meanwhile.
        SegmentUnreadable: see stored.py.
    """
    rows = size_bytes = 0
    first: int | None = None  # By origin: compaction may have left a copy of it for each lane.
    for one in ranges(selected, BLOCK_BYTES):
        with segment_file(one.path) as file:
            for found in walk(
                file.pread, one.at, one.end_at, seed=one.seed, floor=one.floor, closed=True,
                decrypt=selected.log.decrypt,
            ):  # fmt: skip
                if isinstance(found, Damaged):
                    continue
                record_rows = _row_counts(found, one, selected)
                taken = record_rows > 0
                total_rows = rows + np.cumsum(record_rows)
                total_bytes = size_bytes + np.cumsum(np.where(taken, _sizes(found), 0))
                over = np.zeros(len(taken), bool)
                if rows_max is not None:
                    over |= total_rows > rows_max
                if bytes_max is not None:
                    over |= total_bytes > bytes_max
                if first is None and taken.any():
                    first = int(found.origin[np.argmax(taken)])
                over &= taken & (found.origin != first)
                if over.any():
                    return int(found.origin[np.argmax(over)])
                rows, size_bytes = int(total_rows[-1]), int(total_bytes[-1])
    return selected.end


def _sizes(block: Block) -> Ints:
    return np.append(block.at[1:], block.end_at) - block.at


def _row_counts(block: Block, one: ByteRange, selected: Selected) -> Ints:
    """Return how many rows each record makes."""
    record, lane, first = block.run_record, block.run_lane, block.run_first
    messages = block.run_messages
    low, high = _bounds(lane, selected.lanes)
    rows = np.clip(high - first, 0, messages) - np.clip(low - first, 0, messages)
    position = block.position[record]
    if one.carried is None:
        is_wanted = (
            (block.origin[record] == position) & (position >= one.start) & (position < one.end)
        )
    else:
        is_wanted = is_carried(position, lane, one.carried)
    return np.bincount(
        record[is_wanted], np.maximum(rows[is_wanted], 0), minlength=len(block.at)
    ).astype(np.int64)


def _bounds(lane: Ints, lanes: LaneTable) -> tuple[Ints, Ints]:
    found, inverse = np.unique(lane, return_inverse=True)
    bounds = [
        (offsets.low, offsets.high) if (offsets := lanes.get(one)) else (0, 0)
        for one in found.tolist()
    ]
    both = np.array(bounds, np.int64).reshape(-1, 2)[inverse]
    return both[:, 0], both[:, 1]
