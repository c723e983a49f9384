"""`readStream`: reads the log from a log position on, as far as it is known to be on stable storage.

latestOffset ──> refresh the log, sync it, go as far as the trigger may
partitions ────> what is left of [start, end); failOnDataLoss decides about the rest
checkpoint ────> Spark's own; nothing is acknowledged to the broker, which does not know of this query
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from durable.log.record import FIRST_POSITION

from ..errors import DataLost
from .advance import advance
from .catalog import EMPTY_SPAN, Catalog
from .options import EARLIEST, LATEST, OFFSET_MAX, Options, check_streaming
from .plan import Offsets, Selected, Times
from .progress import Progress, from_json
from .query import Query
from .shares import share_out
from .splits import Split, arrow_schema, read, splits

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader for one streaming query. On the driver it lives as long as the query; each task gets a copy to read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_streaming(options)
        self._options, self._query = options, Query(options, arrow_schema(schema, options))
        self._catalog = Catalog(options)
        self._target: int | None = None
        """The log position where `availableNow` ends."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_query": self._query}

    def initialOffset(self) -> dict[str, Any]:
        return self._catalog.retry_plan(self._initial).to_json()

    def _initial(self) -> Progress:
        options, catalog = self._options, self._catalog
        end = self._refresh()
        catalog.check_selection()
        log, start = catalog.log, options.starting_offsets
        if options.starting_us is not None:
            # A power cut may take what is behind `end`; other records written there then must not count as done.
            position = min(log.position_at(options.starting_us), end)
            return replace(self._progress_at(position, {}), since_us=options.starting_us)
        if start in (None, LATEST):
            return self._progress_at(end, {})
        spans = log.spans()
        starts = {
            number: catalog.first_offset(number, lane, start, spans.get(number, EMPTY_SPAN))
            for number, lane in catalog.lanes().items()
            if start != EARLIEST
        }
        return self._progress_at(FIRST_POSITION, starts)

    def _progress_at(self, position: int, starts: dict[int, int]) -> Progress:
        log = self._catalog.log
        absent = tuple(log.absent(position, log.end)) if position < log.end else ()
        return Progress(log.digest, position, absent, starts, last=log.last_before(position))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._refresh()

    def reportLatestOffset(self) -> dict[str, Any]:
        return Progress(self._catalog.log.digest, self._refresh()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        start_progress = from_json(start)
        return self._catalog.retry_plan(lambda: self._latest(start_progress, limit)).to_json()

    def _latest(self, start: Progress, limit: ReadLimit) -> Progress:
        log, end = self._catalog.log, self._refresh()
        start = self._check_store(start)
        if self._target is not None:
            end = min(end, self._target)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if end <= start.position:
            return start
        selected = self._selected(start, end)
        if rows_max is not None or bytes_max is not None:
            end = advance(selected, rows_max=rows_max, bytes_max=bytes_max)
            selected = selected._replace(end=end)
        return start.advanced_to(end, log.last_before(end)).with_shares(
            self._query.shares(selected)
        )

    def _refresh(self) -> int:
        """Refresh the log, and return the log position up to which it is on stable storage."""
        catalog = self._catalog
        catalog.refresh()
        log = catalog.log
        return log.end if self._options.sync_tail and log.sync() else log.synced_end

    def _check_store(self, start: Progress) -> Progress:
        log, lossy = self._catalog.log, not self._options.fail_on_data_loss
        if start.store != log.digest:
            if lossy:
                absent = tuple(log.absent(FIRST_POSITION, log.end))
                return Progress(log.digest, FIRST_POSITION, absent, since_us=start.since_us)
            raise DataLost("this directory contains another store than the query has read before")
        # Compare with the log's end, not with the end on stable storage, which goes back if a sync fails.
        if log.end < start.position:
            if lossy:
                return start.advanced_to(log.end, log.last_before(log.end))
            raise DataLost(
                f"the log ends at log position {log.end}, but was already read up to {start.position}: "
                "its end is lost, or an older copy of the directory was restored"
            )
        return self._check_history(start)

    def _check_history(self, start: Progress) -> Progress:
        if start.last is None:
            return start
        log, position = self._catalog.log, start.last.position
        current = log.last_before(position + 1)
        if current is None or current.position < position or current == start.last:
            return start  # Freed or damaged, it tells nothing; what followed it is missed.
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"log position {position} contains another record than was read there: "
                "an older copy of the directory was restored, and then written to"
            )
        return start.advanced_to(start.position, log.last_before(start.position))

    def _selected(self, start: Progress, end: int) -> Selected:
        table = {
            number: Offsets(lane.queue, lane.partition, start.starts.get(number, 0), OFFSET_MAX)
            for number, lane in self._catalog.lanes().items()
        }
        return Selected(self._catalog.log, table, Times(start.since_us), start.position, end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Split]:
        start_progress, end_progress = from_json(start), from_json(end)
        return self._catalog.retry_plan(lambda: self._splits(start_progress, end_progress))

    def _splits(self, start_progress: Progress, end_progress: Progress) -> list[Split]:
        log = self._catalog.log
        if log.end < end_progress.position or log.digest != end_progress.store:  # After a restart.
            self._refresh()
            if self._check_store(end_progress).store != end_progress.store:
                # What is there now is for the next batch, from the front of the log on.
                return splits((), Times())
            start_progress = self._check_store(start_progress)
        if start_progress.store != end_progress.store:
            absent = ((FIRST_POSITION, end_progress.position),)
            start_progress = Progress(
                end_progress.store, FIRST_POSITION, absent, since_us=end_progress.since_us
            )
        gone = start_progress.missed(log.absent(start_progress.position, end_progress.position))
        if gone and self._options.fail_on_data_loss:
            positions = ", ".join(f"{low} to {high - 1}" for low, high in gone)
            raise DataLost(
                f"log positions {positions} were freed before they were read (retention or compaction)"
            )
        selected = self._selected(start_progress, end_progress.position)
        if end_progress.shares is None:
            return splits(self._query.works(selected), selected.times)
        return splits(share_out(selected, end_progress.shares), selected.times)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._query, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the progress, and nobody else needs it."""

    def stop(self) -> None: ...
