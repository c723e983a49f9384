"""`mesh-broker bindings` and `cursors`: what is routed where, and how far readers are, from a shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from mesh.commands.options import Commands
from mesh.commands.terminal import printable, words

from ..client.connection import Connection
from ..errors import UnknownStream
from .options import add_command, do_with_broker


def add(commands: Commands) -> None:
    command = add_command(
        commands, "bindings", "what exchanges of a running broker route where, and by which keys"
    )
    command.add_argument("--json", action="store_true", help="one JSON document")
    do_with_broker(command, _bindings)
    command = add_command(
        commands, "cursors", "how far named readers of streams are, and how far behind"
    )
    command.add_argument("stream", nargs="?", help="default: all of them")
    command.add_argument("--json", action="store_true", help="one JSON document")
    do_with_broker(command, _cursors)


async def _bindings(broker: Connection, args: argparse.Namespace) -> None:
    found = await broker.bindings()
    if args.json:
        print(json.dumps(found))
        return
    for one in found:
        given = f", arguments {json.dumps(one['arguments'])}" if one["arguments"] else ""
        kind = "exchange " if one["to_exchange"] else ""
        print(
            printable(f"{one['exchange']} -> {kind}{one['destination']}, key {one['key']!r}{given}")
        )
    if not found:
        words("nothing is bound: only the default exchange routes, to queues by their names")


async def _cursors(broker: Connection, args: argparse.Namespace) -> None:
    streams = (await broker.statistics())["streams"]
    if args.stream is not None and args.stream not in streams:
        raise UnknownStream(args.stream, streams)
    found = list(_rows(streams, args.stream))
    if args.json:
        print(json.dumps(found))
        return
    for one in found:
        print(printable(
            f"stream {one['stream']}, cursor {one['cursor']}: at offset {one['offset']}, "
            f"{one['lag']} behind"
        ))  # fmt: skip
    if not found:
        words("there are no cursors")


def _rows(streams: dict[str, Any], wanted: str | None) -> Iterator[dict[str, Any]]:
    """`lag` is how many messages are there to be read; those freed meanwhile are not."""
    for name, stream in streams.items():
        for cursor, offset in stream["cursors"].items() if wanted in (None, name) else ():
            lag = max(stream["end"] - max(offset, stream["start"]), 0)
            yield {"stream": name, "cursor": cursor, "offset": offset, "lag": lag}
