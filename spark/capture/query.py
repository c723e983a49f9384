"""One query, with Spark or without: what it selects, how that is shared out, and what a task reads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .catalog import Catalog, opening_errors
from .options import QUEUE, Options
from .plan import Selected, Times, Work, pack
from .shares import Shares, shares_of
from .topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


class Query:
    """A query with these options, for rows of `schema`; each task gets a copy. Filters may narrow `topics`, `times`."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema
        self.topics = Topics(options.subscribe, options.subscribe_pattern)
        self.times = Times()

    def select(self) -> Selected:
        """Return everything that a batch query reads, of the log as it is now. Raises what Catalog raises."""
        catalog = Catalog(self.options)
        catalog.refresh()
        found = catalog.retry_plan(catalog.select_batch)
        return found._replace(times=found.times.narrowed(self.times))

    def works(self, selected: Selected, cores: int = 1) -> list[Work]:
        """Plan for so many `cores`, if the caller knows: the planner of the data source has no session to ask."""
        options = self.options
        return pack(
            selected, split_bytes=options.max_partition_bytes, splits_min=options.min_partitions,
            ordered=options.ordering == QUEUE, cores=cores,
        )  # fmt: skip

    def shares(self, selected: Selected) -> Shares:
        """Return shares that are the same whenever this selection is planned again."""
        ordered = self.options.ordering == QUEUE
        return shares_of(self.works(selected), selected.start, ordered=ordered)

    def read(self, work: Work, times: Times) -> Iterator[pa.RecordBatch]:
        """Yield all rows of one task.

        Raises:
            what reading.py raises; NoCapture: the planner had the directory, and this machine does not.
        """
        from .columns import RowSpec  # Imported here, because planning needs no pyarrow.
        from .reading import read

        options = self.options
        accepts = None if self.topics.accepts_all else self.topics
        spec = RowSpec(self.schema, times, accepts, options.batch_rows)
        with opening_errors(Path(options.path)):
            yield from read(
                work, spec, damaged=options.damaged, fail_on_data_loss=options.fail_on_data_loss,
                keys=options.keys,
            )  # fmt: skip


def freeze_modules() -> None:
    """Exclude what a worker has loaded so far from all further garbage collections.

    PySpark collects after every task. That took 16 ms per task, a seventh of the time that Python took to read,
    and found nothing.
    """
    if not gc.get_freeze_count():
        gc.freeze()
