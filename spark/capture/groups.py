"""Takes the batches of grouped records apart; see durable/vhost/groups.py for the bytes of a group.

items    | batch | group of 3         | batch |
become   | batch | batch batch batch  | batch |      the three share one header
"""

from __future__ import annotations

import numpy as np

from durable.vhost.groups import (
    ENTRY_FIELDS,
    FIELD_BYTES,
    FRONT,
    KIND,
    KIND_AT,
    KINDS,
    NUMBER,
    SPREAD_KIND,
)
from mesh.protocol.batch import HEADER_BYTES, LOST, MAGIC, VERSION

from .gather import Bytes, Ints, Numbers, concat_ranges, numbers

GROUP_FRONTS = [MAGIC | VERSION << 16 | kind << 8 * KIND_AT for kind in KINDS]


def ungrouped(bodies: bytes, at: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Find the batches in bodies, `bodies[at:end]` each, whether alone or in groups.

    A group that is not valid is returned as one item, which is not a valid batch. What compaction has cut out of a
    group is left out.

    Returns:
        for each batch the index of its body, where it begins and ends, and how many messages come before
        it in that body.
    """
    buffer: Bytes = np.frombuffer(bodies, np.uint8)
    groups = _find_groups(buffer, at, end)
    if not len(groups):
        return np.arange(len(at)), at, end, np.zeros(len(at), np.int64)
    tables = _Tables(buffer, at[groups])
    count, front = np.ones(len(at), np.int64), np.zeros(len(at), np.int64)
    count[groups], front[groups] = tables.count, tables.end - at[groups]
    body = np.repeat(np.arange(len(at)), count)
    inside, entry = front[body] > 0, tables.entries()
    size, messages = (end - at)[body], np.zeros(len(body), np.int64)
    size[inside] = numbers(buffer, entry, "<u4")
    messages[inside] = numbers(buffer, entry + FIELD_BYTES, "<u4")
    begin = (at + front)[body]
    begin += _sum_before(size, count)
    columns = body, begin, begin + size, _sum_before(messages, count)
    cut = inside & (size >= HEADER_BYTES)
    cut[cut] = numbers(buffer, begin[cut] + KIND_AT, "u1") == LOST
    if not cut.any():
        return columns
    body, begin, end, before = (column[~cut] for column in columns)
    return body, begin, end, before


class _Tables:
    """Locates and reads the tables of groups that begin at bytes `at`."""

    def __init__(self, buffer: Bytes, at: Ints) -> None:
        self.count = numbers(buffer, at + 12, "<u4").astype(np.int64)
        spread = numbers(buffer, at + KIND_AT, "u1") == SPREAD_KIND
        in_entry: Ints = np.where(spread, ENTRY_FIELDS[SPREAD_KIND], ENTRY_FIELDS[KIND])
        self._entry_bytes = FIELD_BYTES * in_entry
        self._start = at + FRONT.size + np.where(spread, NUMBER.size, 0)
        self.end = self._start + self._entry_bytes * self.count
        """Where the first batch of each group begins."""

    def entries(self) -> Ints:
        """Return where each entry begins, group by group."""
        count = self.count
        inside = concat_ranges(np.zeros_like(count), count)
        at: Ints = np.repeat(self._start, count) + np.repeat(self._entry_bytes, count) * inside
        return at


def _find_groups(buffer: Bytes, at: Ints, end: Ints) -> Ints:
    """Return the indices of bodies that are groups whose lengths add up."""
    size = end - at
    found: Ints = np.flatnonzero(size >= FRONT.size)
    found = found[np.isin(numbers(buffer, at[found], "<u4"), GROUP_FRONTS)]
    tables = _Tables(buffer, at[found])
    fits: Numbers = (
        (tables.count > 0)
        & (tables.end - at[found] <= size[found])
        & (numbers(buffer, at[found] + 8, "<u4") == size[found])
    )
    found = found[fits]
    if not len(found):
        return found
    tables = _Tables(buffer, at[found])
    count = tables.count
    sizes = numbers(buffer, tables.entries(), "<u4").astype(np.int64)
    sums = np.add.reduceat(sizes, np.cumsum(count) - count)
    whole: Ints = found[tables.end - at[found] + sums == size[found]]
    return whole


def _sum_before(values: Ints, count: Ints) -> Ints:
    """Return, for each value, the sum of the values before it in the same body."""
    sums = np.cumsum(values) - values
    first = np.repeat(np.cumsum(count) - count, count)
    before: Ints = sums - sums[first]
    return before
