"""One query, with Spark or without: what it selects, how that is shared out, what a task reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .catalog import Catalog, opening
from .options import KEEP, QUEUE, Options
from .plan import Selected, Times, Work, pack
from .shares import Shares, shares_of
from .topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


class Query:
    """Of these options, for `columns`; tasks get a copy. Filters may narrow `topics` and `times`."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self.options, self.columns = options, columns
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

    @property
    def never_null(self) -> bool:
        """Whether no row has a null: one of what is damaged has."""
        return self.options.damaged != KEEP

    def read(
        self, work: Work, times: Times, *, never_null: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """All rows of one task.

        Args:
            never_null: declare the columns so, see `ddl`.
        Raises:
            what reading.py does; NoCapture: whoever planned had the directory, this machine has not.
        """
        from .columns import Wanted  # Who only plans needs no pyarrow.
        from .reading import read

        options = self.options
        accepts = None if self.topics.all else self.topics
        wanted = Wanted(self.columns, times, accepts, options.batch_rows, never_null)
        with opening(Path(options.path)):
            yield from read(
                work, wanted, damaged=options.damaged, fail_on_data_loss=options.fail_on_data_loss,
                keys=options.keys,
            )  # fmt: skip
