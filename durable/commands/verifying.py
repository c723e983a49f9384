"""`mesh-broker verify`: reads every byte of a directory and checks every checksum and the chain."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from mesh.commands.options import Commands, add_keys, nonempty_name, path, settings
from mesh.commands.terminal import print_stderr, printable
from mesh.joining import keyring_of

from ..broker.directory import has_segments
from ..log.checkpoint import Unusable, decode_checkpoint
from ..log.checkpoints import FOLDER_NAME, KINDS, ROOT_NAME
from ..log.encryption import damaged_copies
from ..log.header import STORE_NAME, decode_store
from ..log.read_only_disk import ReadOnlyDirectory, ReadOnlyFolder
from ..log.store_keys import KEYS_NAME
from .findings import as_json, findings, invalid_records, summary
from .offline import OfflineVhost, VhostPlace, each_offline, find_vhosts
from .options import add_json


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "verify", help="check every byte of a broker's directory",
        description="Read everything in a broker's directory and report what is damaged or lost, as a "
        "broker would\nwhen it starts. Nothing is changed. Exit status 0 only if there are no problems: a "
        "torn tail, which\nSIGKILL or a power cut may leave behind, gives status 1 until a broker has been "
        "started.\nWithout keys, only the checksums of encrypted data are checked.",
    )  # fmt: skip
    add_offline(command)
    add_json(command)
    command.set_defaults(run=verify)


def add_offline(command: argparse.ArgumentParser) -> None:
    """Add the options for which directory, and which vhost in it."""
    command.add_argument(
        "data", metavar="DIR", type=path, help="data directory, as given to `serve --data`"
    )
    command.add_argument(
        "--vhost", type=nonempty_name, metavar="V", help="only this vhost (default: all)"
    )
    add_keys(command.add_argument_group("keys (if data is encrypted)"))
    command.add_argument(
        "--unlocked", action="store_true",
        help="read even while a broker has the directory open; data being written may look damaged",
    )  # fmt: skip


def verify(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    found, load_keyring = find_vhosts(args.data, args.vhost), partial(keyring_of, settings(args))
    for place, offline in each_offline(
        found, load_keyring, unlocked=args.unlocked, allow_undecrypted=True
    ):
        problems = problems_of(place, offline)
        kept = sorted(one.name for one in place.log.glob("damaged.*"))
        rows.append({
            "vhost": place.name, "ok": not problems, "problems": problems, "kept": kept,
            "undecrypted": offline.undecrypted,
            **as_json(offline.report, read_only_path=place.log),
        })  # fmt: skip
        if not args.json:
            _show(place, offline, problems, kept)
    all_ok = all(row["ok"] for row in rows)
    if args.json:
        print(json.dumps({"ok": all_ok, "vhosts": rows}))
    return 0 if all_ok else 1


def problems_of(place: VhostPlace, offline: OfflineVhost) -> list[str]:
    """Return a line for each problem."""
    unnamed = [] if place.named else [f"the name of the vhost in {place.log.parent} cannot be read"]
    replay, copies = offline.replay, damaged_copies(place.log)
    keys = [f"{copies} of the 2 copies in the file {KEYS_NAME} are damaged"] if copies else []
    return [
        *unnamed, *keys, *_damaged_files(place.log),
        *(f"missing: the file {one}" for one in offline.absent),
        *findings(offline.report, read_only=True),
        *(f"missing: {one}" for one in replay.lost_messages(offline.report)),
        *invalid_records(replay.damaged, replay.unknown_kinds),
        *replay.registry.permissions.invalid_patterns(),
    ]  # fmt: skip


def _damaged_files(log: Path) -> Iterator[str]:
    """Yield problems with files other than segments. A start does without these, except that messages which only a
    queue's two `ack` files know to be settled come again if both are damaged."""
    if not (log / STORE_NAME).exists() and has_segments(log):
        yield f"missing: the file {STORE_NAME}"
    if (log / FOLDER_NAME).exists() and not (log / FOLDER_NAME).is_dir():
        yield f"damaged: {FOLDER_NAME} is not a directory"
    files, top = [log / STORE_NAME, log / ROOT_NAME], ReadOnlyFolder(log / FOLDER_NAME)
    for folder in (top, *map(top.directory, _names(top))):
        files += [Path(folder.path, name) for name in _names(folder)]
        if folder.broken:
            yield f"damaged: the directory {Path(folder.path).relative_to(log)} cannot be listed"
    for file in files:
        if file.name not in (STORE_NAME, ROOT_NAME, *KINDS) or not file.is_file():
            continue
        with suppress(FileNotFoundError):  # With --unlocked, the broker may have removed it.
            with closing(ReadOnlyDirectory(file.parent).open(file.name)) as opened:
                data = opened.pread(opened.size_bytes, 0)
            if file.name == STORE_NAME:
                intact = decode_store(data) is not None
            else:
                intact = decode_checkpoint(data) not in (Unusable.DAMAGED, Unusable.MISSING)
            if not intact:
                yield f"damaged: the file {file.relative_to(log)}"


def _names(folder: ReadOnlyFolder) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return folder.names()
    return []


def _show(place: VhostPlace, offline: OfflineVhost, problems: list[str], kept: list[str]) -> None:
    print(printable(f"vhost {place.name}: {summary(offline.report)}"))
    for line in problems:
        print(printable(f"vhost {place.name}: {line}"))
    for one in offline.report.absent:
        print_stderr(f"vhost {place.name}: log positions {one.start} to {one.end - 1} were freed")
    if kept:
        print_stderr(
            f"vhost {place.name}: copies of damaged data, kept by earlier starts: {' '.join(kept)}"
        )
    if offline.undecrypted:
        print_stderr(
            f"vhost {place.name}: {offline.undecrypted} records are encrypted and no key is given: "
            "only their checksums were checked"
        )
    if not problems:
        print(printable(f"vhost {place.name}: no problems"))
