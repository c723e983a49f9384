"""`mesh capture cat`: prints messages in the order of the log, one per line."""

from __future__ import annotations

import argparse
import json
from typing import Any

from mesh.commands.terminal import jsonable, payload_fields, printable, write_stdout
from mesh.times import format_time

from ..capture.rows import SQL_TYPES
from .reading import read_batches

PLAIN = ("queue", "offset", "timestamp", "topic", "value")
Row = dict[str, Any]


def run(args: argparse.Namespace) -> int:
    """Raises CaptureError, DurableError."""
    if args.json:
        found, line = read_batches(args, tuple(SQL_TYPES), includeHeaders="true"), as_json
    else:
        found, line = read_batches(args, PLAIN), as_payload if args.payload else as_text
    left = args.limit
    for batch in found:
        taken = batch.num_rows if left is None else min(left, batch.num_rows)
        rows = batch.slice(0, taken).to_pylist()
        if rows:
            write_stdout(b"".join([line(row) + b"\n" for row in rows]))
        if left is not None:
            left -= len(rows)
            if not left:
                break
    return 0


def as_payload(row: Row) -> bytes:
    payload: bytes = row["value"]
    return payload


def as_text(row: Row) -> bytes:
    """Return one line. Unprintable characters are escaped, so that a payload cannot control the terminal."""
    payload = row["value"].decode("utf-8", "backslashreplace")
    place = f"{row['queue']}@{row['offset']}"
    return printable(f"{format_time(row['timestamp'])} {place} {row['topic']} {payload}").encode()


def as_json(row: Row) -> bytes:
    fields = {
        **{name: row[name] for name in ("queue", "partition", "offset")},
        "timestamp": format_time(row["timestamp"]), **{name: row[name] for name in ("exchange", "topic")},
        **payload_fields(row["value"]), "publisher": row["publisher"].hex(),
        **{name: row[name] for name in ("epoch", "sequence")},
        "published": format_time(row["published"]),
        "headers": {one["key"]: header(one["value"]) for one in row["headers"]},
    }  # fmt: skip
    return json.dumps(fields).encode()


def header(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return jsonable(value)
