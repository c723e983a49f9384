"""The rows of a capture without Spark, read in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from durable.broker.directory import vhost_names
from durable.errors import DurableError

from .catalog import Catalog
from .options import check_batch, read_options
from .query import Query
from .rows import schema_of

if TYPE_CHECKING:
    import pyarrow as pa


def batches(options: Mapping[str, str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield what `mesh-capture` reads with these options, as Arrow batches of `columns` (see rows.py).

    In the order of the log, unless `ordering` asks for another one.

    Raises:
        CaptureError, DurableError: as a batch query, each in one line.
    """
    parsed = read_options(options)
    check_batch(parsed)
    query = Query(parsed, schema_of(parsed, columns))
    selected = query.select()
    for work in query.works(selected):
        yield from query.read(work, selected.times)


def vhosts_instead(options: Mapping[str, str]) -> list[str]:
    """Return the other vhosts in the directory that have queues or streams; none if that of `options` has messages.

    It is only for a hint, so a vhost that cannot be read is left out.

    Raises:
        CaptureError, DurableError: as `batches`.
    """
    parsed = read_options(options)
    chosen = Catalog(parsed)
    chosen.refresh()
    if any(span.messages for span in chosen.retry_plan(chosen.log.spans).values()):
        return []
    found = []
    for name in vhost_names(Path(parsed.path)):
        with suppress(DurableError, OSError):
            other = Catalog(replace(parsed, vhost=name))
            other.refresh()
            if name != parsed.vhost and other.retry_plan(other.log.lanes):
                found.append(name)
    return found
