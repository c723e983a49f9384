"""Batches that share a record, as items of their own; see durable/vhost/groups.py for their bytes.

items    | batch | group of 3         | batch |
become   | batch | batch batch batch  | batch |      the three have one header
"""

from __future__ import annotations

import numpy as np

from durable.vhost.groups import ENTRY_BYTES, FRONT, KIND
from mesh.protocol.batch import MAGIC, VERSION

from .gather import Bytes, Ints, Numbers, counted, numbers

MARK = MAGIC | VERSION << 16 | KIND << 24


def ungrouped(bodies: bytes, at: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """What stands in bodies, `bodies[at:end]` each: batches, alone or in groups.

    A group that makes no sense stays what it is, which is no batch.

    Returns:
        For each batch: which body it is in, where it begins and ends, and how many messages of that body
        come before it.
    """
    buffer: Bytes = np.frombuffer(bodies, np.uint8)
    groups = _groups(buffer, at, end)
    if not len(groups):
        return np.arange(len(at)), at, end, np.zeros(len(at), np.int64)
    count = np.ones(len(at), np.int64)
    count[groups] = numbers(buffer, at[groups] + 12, "<u4")
    body = np.repeat(np.arange(len(at)), count)
    grouped = np.zeros(len(at), bool)
    grouped[groups] = True
    inside, entry = grouped[body], _entries(at[groups], count[groups])
    size, messages = (end - at)[body], np.zeros(len(body), np.int64)
    size[inside], messages[inside] = (
        numbers(buffer, entry, "<u4"),
        numbers(buffer, entry + 4, "<u4"),
    )
    begin = (at + np.where(grouped, FRONT.size + ENTRY_BYTES * count, 0))[body]
    begin += _before(size, count)
    return body, begin, begin + size, _before(messages, count)


def _groups(buffer: Bytes, at: Ints, end: Ints) -> Ints:
    """Indices of bodies that are groups whose lengths add up."""
    size = end - at
    found: Ints = np.flatnonzero(size >= FRONT.size)
    found = found[numbers(buffer, at[found], "<u4") == MARK]
    count = numbers(buffer, at[found] + 12, "<u4").astype(np.int64)
    front = FRONT.size + ENTRY_BYTES * count
    fits: Numbers = (
        (count > 0)
        & (front <= size[found])
        & (numbers(buffer, at[found] + 8, "<u4") == size[found])
    )
    found, count, front = found[fits], count[fits], front[fits]
    if not len(found):
        return found
    sizes = numbers(buffer, _entries(at[found], count), "<u4").astype(np.int64)
    sums = np.add.reduceat(sizes, np.cumsum(count) - count)
    whole: Ints = found[front + sums == size[found]]
    return whole


def _entries(at: Ints, count: Ints) -> Ints:
    """Where the tables of groups that begin at these bytes have an entry: `count` of them each."""
    return np.repeat(at + FRONT.size, count) + ENTRY_BYTES * counted(np.zeros_like(count), count)


def _before(values: Ints, count: Ints) -> Ints:
    """For each value the sum of those before it that are of the same body."""
    sums = np.cumsum(values) - values
    first = np.repeat(np.cumsum(count) - count, count)
    before: Ints = sums - sums[first]
    return before
