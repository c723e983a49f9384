"""Finds what compaction has carried forward of ranges whose segments were freed after planning.

planned    msgs.3 | .......... |              read    msgs.3 gone
                                                      msgs.9 | ·  ·· |   carried copies of what was left of it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from .decryption import KeyFiles
from .plan import NO_LIMIT, ByteRange, Carried, LaneTable, Selected, Times, carried_ranges
from .stored import StoredLog


class Replacements:
    """Finds replacements for one task. It refreshes the log when a range is gone, and again for each further one."""

    def __init__(self, lanes: LaneTable, keys: KeyFiles) -> None:
        self._lanes, self._keys = lanes, keys
        self._log: StoredLog | None = None

    def find(self, gone: ByteRange) -> list[ByteRange]:
        """Return ranges to be read instead, in the order that their records had first. There are none if the range
        was missing from the beginning, if its segment is still there, or if another store is there now.

        Raises:
            NoCapture, StoreKeyMissing, StoreKeyWrong, KeysUnusable, ForeignStore, NewerFormat: see StoredLog.
        """
        if gone.missing or Path(gone.path).exists():
            return []
        log = self._log = self._log or StoredLog(Path(gone.path).parent, self._keys)
        log.refresh()
        if log.seed != gone.seed:
            return []
        if gone.carried is None:
            found = self._carried(
                log, max(gone.start, gone.first_origin), min(gone.end, gone.records_end)
            )
        else:
            low, high = int(gone.carried.origin.min()), int(gone.carried.origin.max())
            found = [*_select_runs(self._carried(log, low, high + 1), gone.carried)]
        return [replace(one, reports=gone.reports) for one in found]

    def _carried(self, log: StoredLog, start: int, end: int) -> list[ByteRange]:
        return [*carried_ranges(Selected(log, self._lanes, Times(), start, end), NO_LIMIT)]


def _select_runs(ranges: list[ByteRange], wanted: Carried) -> Iterator[ByteRange]:
    """Yield only the runs that were moved records already when this was planned: other ranges have the rest."""
    pairs = {*zip(wanted.origin.tolist(), wanted.lane.tolist(), strict=True)}
    for one in ranges:
        carried = one.carried
        assert carried is not None, "all of them are of moved records"
        found = zip(carried.origin.tolist(), carried.lane.tolist(), strict=True)
        which = np.flatnonzero([pair in pairs for pair in found])
        if len(which):
            columns = (carried.position[which], carried.lane[which], carried.origin[which])
            yield replace(one, carried=Carried(*columns))
