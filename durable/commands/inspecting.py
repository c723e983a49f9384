"""`mesh-broker inspect`: shows what is in a broker's directory."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mesh.commands.options import Commands, WrongUsage, settings
from mesh.commands.terminal import jsonable, payload_fields, print_stderr, printable
from mesh.errors import RemoteProtocolError
from mesh.joining import keyring_of
from mesh.protocol.batch import Batch
from mesh.times import format_time, time_at

from ..broker.directory import DEFAULT_VHOST
from ..definition_forms import to_plain
from ..errors import DurableError, UnknownQueue
from ..log.bodies import MESSAGES, batch_bytes, decode_definitions
from ..log.encryption import is_encrypted
from ..log.record import Kind, Record
from ..log.segments import Segment
from ..queues.queue import Queue
from ..vhost.cutting import cut_ranges
from ..vhost.groups import is_group, read_front
from .findings import as_json, summary
from .offline import OfflineVhost, VhostPlace, each_offline, find_vhosts, kind_name
from .options import sizes
from .stored import Message, messages
from .verifying import add_offline, problems_of


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "inspect", help="show what is in a broker's directory",
        description="Show what is in a broker's directory: segments, records, definitions, and numbers "
        "of ready\nmessages. Nothing is changed.",
    )  # fmt: skip
    add_offline(command)
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--records", action="store_true", help="print a line for each record")
    shown.add_argument(
        "--queue", metavar="NAME", help="print a line for each unsettled message of a queue, or each message "
        f"of a stream (vhost {DEFAULT_VHOST} if there are several and --vhost is not given)",
    )  # fmt: skip
    command.add_argument(
        "--cat", action="store_true",
        help="with --queue: print payloads instead, each with a line end; with --json: also payloads",
    )  # fmt: skip
    command.add_argument(
        "--json", action="store_true", help="print one JSON document, or one per record or message"
    )
    command.set_defaults(run=inspect)


def inspect(args: argparse.Namespace) -> int:
    if args.cat and args.queue is None:
        raise WrongUsage("--cat prints messages of a queue: name it with --queue")
    found = find_vhosts(args.data, args.vhost)
    if args.queue is not None and len(found) > 1:
        found = find_vhosts(args.data, DEFAULT_VHOST)  # The default vhost, as in all commands.
    rows: list[dict[str, Any]] = []
    load_keyring = partial(keyring_of, settings(args))
    for place, offline in each_offline(found, load_keyring, unlocked=args.unlocked):
        for line in problems_of(place, offline):
            print_stderr(f"vhost {place.name}: {line}")
        if args.records:
            _records(place, offline, as_lines=args.json)
        elif args.queue is not None:
            _messages(offline, args)
        else:
            rows.append(_vhost(place, offline))
    if rows:
        _print_all(rows, as_document=args.json)
    return 0


# A vhost


def _vhost(place: VhostPlace, offline: OfflineVhost) -> dict[str, Any]:
    registry, report = offline.registry, offline.report
    exchanges, bindings = registry.router.definitions()
    return {
        "vhost": place.name, "path": str(place.log), "summary": summary(report),
        "encrypted": is_encrypted(place.log),
        "report": as_json(report, read_only_path=place.log), "problems": problems_of(place, offline),
        "segments": [_segment(one) for one in offline.store.segments],
        "records": {
            kind_name(kind): {"count": one.records, "size_bytes": one.size_bytes}
            for kind, one in sorted(offline.kinds.items())
        },
        "epochs": [
            {"epoch": epoch, "first": first} for epoch, first in sorted(offline.epochs.items())
        ],
        "queues": [_queue(one) for one in registry.queues.values()],
        "streams": [
            {
                "name": one.name, "start": one.start, "end": one.end,
                "size_bytes": one.size_bytes, "cursors": dict(one.cursors),
                "lanes": [one.lane.id], "gaps": len(registry.gaps.of(one.lane.id)),
                "definition": to_plain(one.definition),
            }
            for one in registry.streams.values()
        ],
        "exchanges": [to_plain(one) for one in exchanges],
        "bindings": [jsonable(to_plain(one)) for one in bindings],
        "permissions": [to_plain(one) for one in registry.permissions.definitions()],
        "publishers": len(offline.publishers),
    }  # fmt: skip


def _segment(one: Segment) -> dict[str, Any]:
    return {
        "number": one.number, "first": one.first, "end": one.end, "used_bytes": one.end_at,
        "sealed": one.sealed,
    }  # fmt: skip


def _queue(one: Queue) -> dict[str, Any]:
    return {
        "name": one.name, "ready": one.ready, "size_bytes": one.size_bytes,
        "lanes": [lane.id for lane in one.lanes], "definition": to_plain(one.definition),
    }  # fmt: skip


def _print_all(rows: list[dict[str, Any]], *, as_document: bool) -> None:
    if as_document:
        print(json.dumps({"vhosts": rows}))
        return
    for row in rows:
        for line in _lines(row):
            print(printable(line))


def _lines(row: dict[str, Any]) -> Iterator[str]:
    epochs = [one["epoch"] for one in row["epochs"]]
    span = f"epochs {epochs[0]} to {epochs[-1]}" if epochs else "no epochs"
    yield f"vhost {row['vhost']} in {row['path']}"
    key = ", with a data key" if row["encrypted"] else ""
    store = row["report"]["store_id"]
    yield f"  store {store}{key}, {span}, {row['publishers']} publishers known"
    yield f"  {row['summary']}"
    for one in row["segments"]:
        state = "sealed" if one["sealed"] else "open"
        yield (
            f"  segment {one['number']}: log positions {one['first']} to {one['end'] - 1}, "
            f"{sizes(one['used_bytes'])} used, {state}"
        )
    for kind, one in row["records"].items():
        yield f"  records of {kind}: {one['count']}, {sizes(one['size_bytes'])}"
    for one in row["queues"]:
        yield f"  queue {one['name']}: {one['ready']} ready, {sizes(one['size_bytes'])}"
    for one in row["streams"]:
        yield (
            f"  stream {one['name']}: offsets {one['start']} to {one['end'] - 1}, "
            f"{sizes(one['size_bytes'])}, cursors {len(one['cursors'])}, gaps {one['gaps']}"
            if one["end"] > one["start"]
            else f"  stream {one['name']}: empty, the next offset is {one['end']}"
        )
    for one in row["exchanges"]:
        yield f"  exchange {one['name']}: {one['type']}"
    for one in row["bindings"]:
        yield f"  binding {one['exchange']} -> {one['destination']}, key {one['key']!r}"
    for one in row["permissions"]:
        yield f"  permissions of {one['cluster']}"


# Records


def _records(place: VhostPlace, offline: OfflineVhost, *, as_lines: bool) -> None:
    write = sys.stdout.write
    for record in offline.records():
        row = _record(offline, record)
        if as_lines:
            write(json.dumps({"vhost": place.name, **row}) + "\n")
            continue
        targets = " ".join(f"{one['to']}@{one['first']}" for one in row["targets"])
        write(
            printable(
                f"{row['position']:>10} {row['epoch']:>4} {row['kind']:<12} {row['size_bytes']:>9} "
                f"{row['time']}  {row['what']} {targets}".rstrip()
            )
            + "\n"
        )


def _record(offline: OfflineVhost, record: Record) -> dict[str, Any]:
    header = record.header
    targets = [
        {"lane": lane, "first": first, "to": _owner(offline, lane)}
        for lane, first in record.targets
    ]
    return {
        "position": record.position, "epoch": header.epoch, "kind": kind_name(header.kind),
        "size_bytes": header.total_bytes, "time": _time(header.time_us), "targets": targets,
        "what": _what(record),
    }  # fmt: skip


def _what(record: Record) -> str:
    try:
        if record.kind == Kind.DEFINITIONS:
            counts = Counter(change[0] for change in decode_definitions(record))
            return ", ".join(f"{count} x {word}" for word, count in counts.items())
        if record.kind not in MESSAGES:
            return ""
        body = batch_bytes(record)
        if is_group(body):
            front = read_front(body)
            text = f"{front.messages} in {front.batches} batches"
            if record.header.cut:
                text += f", {sum(end - start for start, end in cut_ranges(body))} cut out"
            stretch = front.stretch
            return text + (f", {front.number + 1} of {stretch.records}" if stretch else "")
        batch = Batch(body)
    except (RemoteProtocolError, DurableError, LookupError, TypeError):
        return "invalid"
    return f"{batch.count} x {batch.topic}"


def _owner(offline: OfflineVhost, lane_id: int) -> str:
    owner = offline.registry.owners.get(lane_id)
    return f"lane {lane_id}" if owner is None else owner.name


def _time(time_us: int) -> str:
    return format_time(time_at(time_us), "milliseconds")


# Messages


def _messages(offline: OfflineVhost, args: argparse.Namespace) -> None:
    registry, name = offline.registry, args.queue
    member = registry.queues.get(name) or registry.streams.get(name)
    if member is None:
        known = [*registry.queues, *registry.streams]
        raise UnknownQueue(name, known, hint="omit --queue to list all queues")
    show: Callable[[Message], None] = _cat if args.cat else _line
    if args.json:
        show = _json_with_payload if args.cat else _json
    lost = 0
    for message in messages(offline, member):
        if isinstance(message, int):
            lost += message
        else:
            show(message)
    if lost:
        raise DurableError(f"{lost} messages of {name} cannot be read")


def _cat(message: Message) -> None:
    sys.stdout.buffer.write(message.payload + b"\n")


def _line(one: Message) -> None:
    headers = json.dumps(jsonable(one.headers)) if one.headers else ""
    print(
        printable(
            f"{one.position:>10} {one.sequence:>10} {len(one.payload):>9} {one.key} {headers}"
        ).rstrip()
    )


def _json(message: Message) -> None:
    print(json.dumps(_row(message)))


def _json_with_payload(message: Message) -> None:
    print(json.dumps({**_row(message), **payload_fields(message.payload)}))


def _row(one: Message) -> dict[str, Any]:
    return {
        "position": one.position, "lane": one.lane, "sequence": one.sequence, "key": one.key,
        "exchange": one.exchange, "priority": one.priority, "returned": one.returned,
        "time": _time(one.time_us), "size_bytes": len(one.payload),
        "headers": jsonable(one.headers),
    }  # fmt: skip
