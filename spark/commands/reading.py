"""What of a capture a command reads, and reading it: one line for whatever is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mesh.commands.options import add_keys, path, settings

from ..settings import joining_options

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = {
    # option of the source: name here
    "vhost": "vhost", "stream": "streams", "queue": "queues", "topic": "subscribe",
    "since": "startingTimestamp", "until": "endingTimestamp",
}  # fmt: skip


def add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument("directory", type=path, metavar="DIR", help="the broker's data directory")
    command.add_argument("--vhost", default="/", metavar="V", help="default /")
    command.add_argument("--queue", action="append", metavar="Q", help="repeatable")
    command.add_argument(
        "--stream", action="append", metavar="S", help="repeatable (default: all there are)"
    )
    command.add_argument(
        "--topic", action="append", metavar="PATTERN", help="as orders.*.created or orders.>"
    )
    command.add_argument(
        "--from", dest="since", metavar="T", help="stored at this time or later: 2026-11-21T20:15Z"
    )
    command.add_argument("--until", metavar="T", help="stored before")
    command.add_argument(
        "--skip-damaged", action="store_true", help="go on behind what has a wrong checksum"
    )
    add_keys(command.add_argument_group("keys (for a directory that is encrypted)"))


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """As the source `mesh-capture` takes them."""
    given = {option: getattr(args, name) for name, option in OPTIONS.items()}
    options = {
        option: ",".join(value) if isinstance(value, list) else value
        for option, value in given.items()
        if value
    }
    damaged = "skip" if args.skip_damaged else "fail"
    keys = joining_options(settings(args))
    return {**options, **keys, "path": str(args.directory), "damaged": damaged}


def read_batches(
    args: argparse.Namespace, columns: Sequence[str], **more: str
) -> Iterator[pa.RecordBatch]:
    """Raises CaptureError, DurableError."""
    from ..capture.local import batches

    return batches({**source_options(args), **more}, columns)
