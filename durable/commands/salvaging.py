"""`mesh-broker salvage`: copies what can be read of a damaged directory into a new one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import trio

from mesh.commands.options import Commands, path, settings
from mesh.commands.terminal import print_stderr
from mesh.errors import TooLarge
from mesh.joining import keyring_of

from ..broker.directory import make_vhost
from ..definition_forms import to_plain
from ..errors import DurableError
from ..log.bodies import encode_acks_in_parts, encode_definitions
from ..log.config import LogConfig
from ..log.encryption import Encryption, encryption_of_copy, is_encrypted
from ..log.log import Log, open_log
from ..log.real_disk import RealDisk
from ..log.record import Draft, Kind
from ..queues.queue import Queue
from ..vhost import changes
from .findings import as_json, findings
from .offline import (
    ADOPTED_PREFIX,
    LoadKeyring,
    OfflineVhost,
    VhostPlace,
    each_offline,
    find_vhosts,
    kind_name,
    open_offline,
)
from .options import add_json, size
from .serving import log_config
from .uncompaction import Uncompaction
from .verifying import add_offline, problems_of

READ_BYTES = 4 << 20


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "salvage", help="copy everything readable in a damaged directory to a new one",
        description="Copy every readable record to a new directory, in order: definitions, "
        "messages, settlements. Records\nthat compaction moved return to their original place. DIR is not "
        "changed. Unreadable data is reported.\nIf the settlement of a message is lost, the message is "
        "delivered again. If the declaration of a queue is\nlost, its messages are put into a queue called "
        "salvaged.N; delete it if that queue had been deleted.\nNEW is encrypted if DIR is. Exit status 0 if "
        "everything readable is in NEW.",
    )  # fmt: skip
    add_offline(command)
    command.add_argument(
        "--to",
        required=True,
        type=path,
        metavar="NEW",
        help="new directory; must not exist or be empty",
    )
    command.add_argument(
        "--segment-size", dest="segment_bytes", type=size, metavar="SIZE",
        help="size of segments in NEW (default 256.0 MiB)",
    )  # fmt: skip
    command.add_argument(
        "--free-min", dest="free_bytes_min", type=size, metavar="SIZE",
        help="space to leave free in NEW's file system for others (default 64.0 MiB)",
    )  # fmt: skip
    add_json(command)
    command.set_defaults(run=salvage)


async def salvage(args: argparse.Namespace) -> int:
    found = find_vhosts(args.data, args.vhost)
    _check_new(args.data, args.to)
    # Report wrong settings before anything is in NEW, which has to be empty at the next attempt.
    config = log_config(args)
    rows, load_keyring = [], partial(keyring_of, settings(args))
    for place, offline in each_offline(
        found, load_keyring, unlocked=args.unlocked, adopt_lanes=True
    ):
        problems = problems_of(place, offline)
        for line in problems:
            print_stderr(f"vhost {place.name}: {line}")
        adopted = [one for one in offline.registry.queues.values() if _is_adopted(one)]
        for one in adopted:
            print_stderr(
                f"vhost {place.name}: {one.ready} messages of an unknown queue, put into {one.name}"
            )
        new = VhostPlace(place.name, make_vhost(args.to, place.name), named=True)
        encryption = (
            encryption_of_copy(place.log, load_keyring()) if is_encrypted(place.log) else None
        )
        copied = await _copy(offline, adopted, new.log, config, encryption)
        rows.append({
            "vhost": place.name, "copied": copied, "problems": problems,
            "adopted": {one.name: one.ready for one in adopted},
            "queues": _counts(offline), "report": as_json(offline.report, read_only_path=place.log),
        })  # fmt: skip
        _compare(new, load_keyring, rows[-1])
        kinds = ", ".join(f"{number} {kind}" for kind, number in copied.items()) or "nothing"
        print_stderr(f"vhost {place.name}: copied to {args.to}: {kinds}")
    if args.json:
        print(json.dumps({"to": str(args.to), "vhosts": rows}))
    return 0


def _check_new(data: Path, new: Path) -> None:
    if new.resolve() == data.resolve():
        raise DurableError(f"--to {new} is {data} itself: name another directory, empty or new")
    if new.resolve().is_relative_to(data.resolve()):
        raise DurableError(f"{new} is inside {data}, which must not be changed")
    if new.exists() and (not new.is_dir() or any(new.iterdir())):
        raise DurableError(f"{new} is not empty: name an empty or new directory")


def _is_adopted(queue: Queue) -> bool:
    return queue.name.startswith(ADOPTED_PREFIX) and queue.ready > 0


async def _copy(
    offline: OfflineVhost, adopted: Iterable[Queue], new: Path, config: LogConfig,
    encryption: Encryption | None,
) -> dict[str, int]:  # fmt: skip
    """Append everything to a new log. Return the number of records by kind."""
    copied: dict[str, int] = {}
    async with open_log(RealDisk(new), config, encryption=encryption) as log:
        drafts = Uncompaction(offline).drafts(offline.records())
        while some := await trio.to_thread.run_sync(_next_drafts, drafts):
            await _append(log, some)
            for one in some:
                kind = kind_name(one.kind)
                copied[kind] = copied.get(kind, 0) + 1
        for draft in _declared(adopted):
            await _append(log, [draft])
        for body in encode_acks_in_parts(offline.recalled, {}, log.append_bytes_max // 4):
            await _append(log, [Draft(Kind.ACKS, body)])
    return copied


def _next_drafts(drafts: Iterator[Draft]) -> list[Draft]:
    """Return the next drafts. Blocks while it reads their records."""
    some, size_bytes = [], 0
    for one in drafts:
        some.append(one)
        size_bytes += one.size_bytes
        if size_bytes >= READ_BYTES:
            break
    return some


async def _append(log: Log, drafts: list[Draft]) -> None:
    """Append drafts; in halves if the new segments are smaller than what was read at once."""
    try:
        (*_, last) = await log.append(drafts)
    except TooLarge:
        if len(drafts) == 1:
            raise
        half = len(drafts) // 2
        await _append(log, drafts[:half])
        await _append(log, drafts[half:])
    else:
        await log.wait_durable(last)


def _declared(adopted: Iterable[Queue]) -> Iterator[Draft]:
    for one in adopted:
        change = [changes.QUEUE, [lane.id for lane in one.lanes], to_plain(one.definition)]
        yield Draft(Kind.DEFINITIONS, encode_definitions([change]))


def _counts(offline: OfflineVhost) -> dict[str, int]:
    """Return messages by queue and stream, without adopted queues that turned out to be empty."""
    registry = offline.registry
    counts = {
        one.name: one.ready
        for one in registry.queues.values()
        if one.ready or not one.name.startswith(ADOPTED_PREFIX)
    }
    return {**counts, **{one.name: one.end - one.start for one in registry.streams.values()}}


def _compare(new: VhostPlace, load_keyring: LoadKeyring, row: dict[str, Any]) -> None:
    """Check that a broker will find in the new directory what was read from the old one."""
    with open_offline(new, load_keyring) as offline:
        problems, counts = findings(offline.report, read_only=True), _counts(offline)
    if problems or counts != row["queues"]:
        raise DurableError(
            f"{new.log} does not contain what was copied, do not use it: {problems or counts}"
        )
