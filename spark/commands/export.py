"""`mesh capture export`: writes Parquet files, in folders by date (UTC) and topic."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from mesh.commands.terminal import print_stderr

from ..capture.rows import SQL_TYPES
from ..errors import ExportFailed
from .parquet import Folders, joined_batches
from .reading import read_batches


def run(args: argparse.Namespace) -> int:
    """Raises CaptureError, DurableError, ExportFailed; what has been written until then stays."""
    found = read_batches(args, tuple(SQL_TYPES), includeHeaders="true")
    if args.out.exists() and any(args.out.iterdir()):
        raise ExportFailed(str(args.out), "the directory is not empty")
    rows = 0
    with writing(args.out):
        args.out.mkdir(parents=True, exist_ok=True)  # Even if there are no messages.
    folders = Folders(args.out)
    try:
        for batch in joined_batches(found):
            with writing(args.out):
                folders.write(batch)
            rows += batch.num_rows
    finally:
        with writing(args.out):
            folders.close()
    print_stderr(f"wrote {rows:,} messages to {args.out}")
    return 0


@contextmanager
def writing(out: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        # The full text of an OSError would repeat the path, and add the error's number.
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ExportFailed(str(out), why.splitlines()[0]) from error
