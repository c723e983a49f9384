"""`mesh-broker read`: a stream of a running broker, from a shell."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from datetime import datetime

from mesh.commands.options import Commands, nonempty_name
from mesh.commands.terminal import (
    jsonable,
    payload_fields,
    print_stderr,
    write_stdout_line,
)
from mesh.protocol.batch import NUMBERS_END
from mesh.times import format_time, parse_time

from ..client.connection import Connection
from ..client.delivery import Delivery
from ..client.records import NAMED_STARTS, Records
from .options import add_broker_options
from .printing import add_printing, print_messages

TIME_HELP = "such as 2026-11-21T20:15, UTC unless it has a zone"


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "read", help="print messages of a stream",
        description="Print the payloads of a stream's messages, each with a line end, and continue with "
        "new ones\nuntil SIGTERM or Ctrl-C. The messages stay in the stream. If the broker is not running, "
        "`mesh capture\ncat` reads its directory.",
    )  # fmt: skip
    command.add_argument("stream", type=nonempty_name)
    command.add_argument(
        "--start", type=_start, default="first", metavar="WHERE",
        help=f"first, last, next, an offset, or a time {TIME_HELP} (default first; in a program, the default of `read` is next)",
    )  # fmt: skip
    command.add_argument(
        "--cursor", type=nonempty_name, metavar="NAME",
        help="name under which the broker stores the position after the last printed message; "
        "if it knows one, --start is ignored",
    )  # fmt: skip
    add_printing(command)
    add_broker_options(command)
    command.set_defaults(run=read)


def _start(text: str) -> str | int | datetime:
    if text in NAMED_STARTS:
        return text
    with suppress(ValueError):
        if not text.isdecimal():
            return parse_time(text)
        if (offset := int(text)) < NUMBERS_END:
            return offset
    wanted = f"first, last, next, an offset, or a time {TIME_HELP}"
    raise argparse.ArgumentTypeError(f"want {wanted}, got {text!r}")


async def read(args: argparse.Namespace) -> int:
    async def records_of(broker: Connection) -> Records:
        if type(args.start) is int:
            await _warn_if_beyond(broker, args)
        return broker.read(args.stream, start=args.start, cursor=args.cursor or "")

    async def show(records: Records, record: Delivery) -> None:
        if record.lost:
            print_stderr(f"messages not captured before offset {record.tag}: {record.lost}")
        await write_stdout_line(_shown(record) if args.json else record.payload)
        if args.cursor:
            await records.store()

    return await print_messages(args, records_of, show)


async def _warn_if_beyond(broker: Connection, args: argparse.Namespace) -> None:
    """Warn if the offset to start at does not exist yet: after a typing error the command would wait silently."""
    stream = (await broker.statistics())["streams"].get(args.stream)
    if stream is None or args.cursor in stream["cursors"] or args.start < stream["end"]:
        return  # If there is no such stream, reading it reports that.
    end = stream["end"]
    print_stderr(
        f"stream {args.stream} has no offset {args.start} yet: the next message gets offset {end}"
    )


def _shown(record: Delivery) -> bytes:
    row = {
        "offset": record.tag, "published": format_time(record.published), "key": record.routing_key,
        **payload_fields(record.payload), "headers": jsonable(record.headers),
        "lost": record.lost,
    }  # fmt: skip
    return json.dumps(row).encode()
