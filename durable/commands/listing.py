"""`mesh-broker bindings` and `cursors`: what is routed where, and how far readers have read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from mesh.commands.options import Commands, nonempty_name
from mesh.commands.terminal import print_stderr, printable

from ..client.connection import Connection
from ..errors import UnknownStream
from .options import add_command, add_json, do_with_broker

T = TypeVar("T")


def add(commands: Commands) -> None:
    command = add_command(commands, "bindings", "list the bindings of a running broker")
    add_json(command)
    do_with_broker(command, _bindings)
    command = add_command(
        commands, "cursors", "list cursors: offset and lag of each named reader of a stream"
    )
    command.add_argument(
        "stream", nargs="?", type=nonempty_name, help="stream (default: all streams)"
    )
    add_json(command)
    do_with_broker(command, _cursors)


def show_all(
    args: argparse.Namespace, found: Sequence[T], line: Callable[[T], str], nothing: str = ""
) -> None:
    """Print all as one JSON document, or one line each; if there is none, tell people so with `nothing`."""
    if args.json:
        print(json.dumps(found))
        return
    for one in found:
        print(printable(line(one)))
    if nothing and not found:
        print_stderr(nothing)


async def _bindings(broker: Connection, args: argparse.Namespace) -> None:
    nothing = (
        "no bindings that this cluster may see (those of the default exchange are never listed)"
    )
    show_all(args, await broker.bindings(), _binding_line, nothing)


def _binding_line(one: dict[str, Any]) -> str:
    given = f", arguments {json.dumps(one['arguments'])}" if one["arguments"] else ""
    kind = "exchange " if one["to_exchange"] else ""
    return f"{one['exchange']} -> {kind}{one['destination']}, key {one['key']!r}{given}"


async def _cursors(broker: Connection, args: argparse.Namespace) -> None:
    found = await broker.statistics()
    streams = found["streams"]
    if args.stream in found["queues"]:
        raise UnknownStream(args.stream, hint=UnknownStream.IS_QUEUE)
    if args.stream is not None and args.stream not in streams:
        raise UnknownStream(args.stream, streams)
    show_all(
        args,
        list(_rows(streams, args.stream)),
        _cursor_line,
        "no cursors that this cluster may see",
    )


def _cursor_line(one: dict[str, Any]) -> str:
    where = f"stream {one['stream']}, cursor {one['cursor']}"
    return f"{where}: at offset {one['offset']}, {one['lag']} behind"


def _rows(streams: dict[str, Any], wanted: str | None) -> Iterator[dict[str, Any]]:
    """Yield a row per cursor. `lag` counts only messages that can still be read, not those freed meanwhile."""
    for name, stream in streams.items():
        for cursor, offset in stream["cursors"].items() if wanted in (None, name) else ():
            lag = max(stream["end"] - max(offset, stream["start"]), 0)
            yield {"stream": name, "cursor": cursor, "offset": offset, "lag": lag}
