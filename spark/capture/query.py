"""One query, with Spark or without: what it selects, how that is shared out, what a task reads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .catalog import Catalog, opening
from .options import QUEUE, Options
from .plan import Selected, Times, Work, pack
from .shares import Shares, shares_of
from .topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


class Query:
    """Of these options, for rows of `schema`; tasks get a copy. Filters may narrow `topics` and `times`."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema
        self.topics = Topics(options.subscribe, options.subscribe_pattern)
        self.times = Times()

    def selected(self) -> Selected:
        """All that a batch query reads, as the log stands now. Raises what Catalog does."""
        catalog = Catalog(self.options)
        catalog.look()
        found = catalog.planned(catalog.batch)
        return found._replace(times=found.times.narrowed(self.times))

    def works(self, selected: Selected, cores: int = 1) -> list[Work]:
        """For so many `cores`, where somebody knows: who plans for the format has no session to ask."""
        options = self.options
        return pack(
            selected, split_bytes=options.max_partition_bytes, splits_min=options.min_partitions,
            ordered=options.ordering == QUEUE, cores=cores,
        )  # fmt: skip

    def shares(self, selected: Selected) -> Shares:
        """How it is to be shared out whenever it is planned."""
        ordered = self.options.ordering == QUEUE
        return shares_of(self.works(selected), selected.start, ordered=ordered)

    def read(self, work: Work, times: Times) -> Iterator[pa.RecordBatch]:
        """All rows of one task.

        Raises:
            what reading.py does; NoCapture: whoever planned had the directory, this machine has not.
        """
        from .columns import Wanted  # Who only plans needs no pyarrow.
        from .reading import read

        options = self.options
        accepts = None if self.topics.all else self.topics
        wanted = Wanted(self.schema, times, accepts, options.batch_rows)
        with opening(Path(options.path)):
            yield from read(
                work, wanted, damaged=options.damaged, fail_on_data_loss=options.fail_on_data_loss,
                keys=options.keys,
            )  # fmt: skip


def spare_modules() -> None:
    """Leave what a worker has loaded by now out of its garbage collections from here on.

    PySpark collects after every task: that took 16 ms a task, a seventh of what Python took to read,
    and found nothing.
    """
    if not gc.get_freeze_count():
        gc.freeze()
