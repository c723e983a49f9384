"""Which messages of which records belong to the wanted lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from durable.log.record import HEADER_BYTES, TARGET_BYTES

from .batches import Records
from .fields import field
from .gather import Ints, Numbers, concat_ranges, numbers
from .plan import Carried, LaneTable


class Runs(NamedTuple):
    """Messages [`low`, `high`) of a record in one lane: arrays with one item per run."""

    record: Ints
    """Index of the record; runs are in the order of records."""
    first: Ints
    """The offset in the lane of the record's message 0."""
    low: Ints
    high: Ints
    partition: Ints
    queue: Ints
    """Index into `names`."""
    names: pa.Array

    def pick(self, which: Numbers) -> Runs:
        return Runs._make([*(column[which] for column in self[:-1]), self.names])

    def queues(self) -> pa.Array:
        if len(self.names) == 1:
            return pa.repeat(self.names[0], len(self.queue))
        return self.names.take(pa.array(self.queue))


def find_runs(records: Records, lanes: LaneTable, carried: Carried | None) -> Runs:
    """Return all runs of these lanes; with `carried`, only those that it names."""
    ids = np.array(sorted(lanes), np.int64)
    offsets = [lanes[one] for one in ids.tolist()]
    names = sorted({one.queue for one in offsets})
    targets = field(records.headers, records.at, "target_count").astype(np.int64)
    record = np.repeat(np.arange(len(records)), targets)
    at = records.at[record] + HEADER_BYTES
    at += TARGET_BYTES * concat_ranges(np.zeros_like(targets), targets)
    lane, first = numbers(records.headers, at, "<i8"), numbers(records.headers, at + 8, "<i8")
    index = np.minimum(np.searchsorted(ids, lane), max(len(ids) - 1, 0))
    is_wanted = ids[index] == lane if len(ids) else np.zeros(len(lane), bool)
    if carried is not None:
        is_wanted &= is_carried(
            field(records.headers, records.at, "position")[record], lane, carried
        )
    record, index = record[is_wanted], index[is_wanted]
    first = first[is_wanted] + records.messages_before[record]
    bounds = np.array([(one.low, one.high) for one in offsets], np.int64).reshape(-1, 2)[index]
    messages = records.messages[record]
    low = np.clip(bounds[:, 0] - first, 0, messages)
    high = np.clip(bounds[:, 1] - first, 0, messages)
    partitions = np.array([one.partition for one in offsets], np.int64)[index]
    numbered = {name: number for number, name in enumerate(names)}
    queue = np.array([numbered[one.queue] for one in offsets], np.int64)[index]
    runs = Runs(record, first, low, high, partitions, queue, pa.array(names, pa.string()))
    return runs if (low < high).all() else runs.pick(low < high)


def is_carried(position: Ints, lane: Ints, carried: Carried) -> Numbers:
    """Return which pairs of log position and lane are among those carried."""
    left = np.searchsorted(carried.position, position, "left")
    count = np.searchsorted(carried.position, position, "right") - left
    found = np.zeros(len(position), bool)
    for one in range(int(count.max()) if len(count) else 0):
        inside = one < count
        found[inside] |= carried.lane[left[inside] + one] == lane[inside]
    return found
