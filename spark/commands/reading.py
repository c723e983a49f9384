"""Options for which part of a capture a command reads, and reading it; every error is one line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mesh.commands.options import WrongUsage, add_keys, nonempty_name, path, settings
from mesh.commands.terminal import print_stderr

from ..errors import ContradictoryOptions, InvalidOption, OptionError
from ..options import check_existing_pattern, iso, read_moment
from ..settings import joining_options

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
OPTIONS = {
    # name of the argument: option of the source
    "stream": "streams", "queue": "queues", "topic": "subscribe",
}  # fmt: skip
TIMES = {"since": "startingTimestamp", "until": "endingTimestamp"}


def argparse_type(read: Callable[..., T], option: str = "", *rest: Any) -> Callable[[str], T]:
    """Return a converter for argparse, whose own kind of error is shown as wrong usage."""

    def convert(text: str) -> T:
        try:
            return read(option, text, *rest) if option else read(text)
        except InvalidOption as error:
            raise argparse.ArgumentTypeError(f"want {error.allowed}, got {text!r}") from None

    return convert


@contextmanager
def wrong_usage() -> Iterator[None]:
    """Report OptionError in the block as wrong usage: there, all options come from the command line."""
    try:
        yield
    except OptionError as error:
        raise WrongUsage(str(error)) from error


def add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument("directory", type=path, metavar="DIR", help="the broker's data directory")
    command.add_argument(
        "--vhost", type=nonempty_name, default="/", metavar="V", help="vhost (default /)"
    )
    command.add_argument(
        "--queue", type=nonempty_name, action="append", metavar="Q", help="queue; repeatable"
    )
    command.add_argument(
        "--stream", type=nonempty_name, action="append", metavar="S",
        help="stream; repeatable (default: all queues and streams)",
    )  # fmt: skip
    command.add_argument(
        "--topic", type=argparse_type(check_existing_pattern, "--topic"), action="append", metavar="PATTERN",
        help="pattern of topics, such as orders.*.created or orders.>; repeatable",
    )  # fmt: skip
    command.add_argument(
        "--from", dest="since", type=argparse_type(read_moment, "--from"), metavar="T",
        help="stored at this time or later: 2026-11-21T20:15, UTC unless it has a zone, or seconds "
        "since 1970",
    )  # fmt: skip
    command.add_argument(
        "--until",
        type=argparse_type(read_moment, "--until"),
        metavar="T",
        help="stored before this time",
    )
    command.add_argument(
        "--skip-damaged", action="store_true", help="skip data with wrong checksums"
    )
    add_keys(command.add_argument_group("keys (for an encrypted directory)"))


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source `mesh-capture`. Raises ContradictoryOptions."""
    given = vars(args)
    if args.since is not None and args.until is not None and args.since > args.until:
        raise ContradictoryOptions(("--from", "--until"), "the end is before the start")
    names = {
        option: json.dumps(given[one]) for one, option in OPTIONS.items() if given[one] is not None
    }
    times = {option: iso(given[one]) for one, option in TIMES.items() if given[one] is not None}
    damaged = "skip" if args.skip_damaged else "fail"
    keys = joining_options(settings(args))
    return {
        **names, **times, **keys, "path": str(args.directory), "vhost": args.vhost, "damaged": damaged,
    }  # fmt: skip


def read_batches(
    args: argparse.Namespace, columns: Sequence[str], **more: str
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows; if there are none, tell which other vhosts may have some. Raises CaptureError,
    DurableError."""
    from ..capture.local import batches, vhosts_instead

    options = {**source_options(args), **more}
    is_empty = True
    for batch in batches(options, columns):
        is_empty = is_empty and not batch.num_rows
        yield batch
    others = vhosts_instead(options) if is_empty else ()
    if others:
        print_stderr(
            f"vhost {args.vhost} has no messages; vhosts with queues or streams: {', '.join(others)}; "
            "choose one with --vhost"
        )
