"""`mesh doctor`: what is wrong on this machine, and what to do about it."""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from typing import Any

import nacl
import trio
import zmq

from discovery.interfaces import addresses
from discovery.mdns import MdnsFinder
from security.announcement import Announcement
from security.errors import SecurityError
from security.files import load_keyring
from security.keyring import Keyring

from ..errors import MeshError
from ..listening import parse_place
from ..settings import KEY_SOURCES, Setting, explain, read_levels
from .options import add_joining, settings

Row = tuple[str, bool, str]
EARLIEST = 1_700_000_000
"""A clock before this (2023) was never set; announcements would be taken for expired."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("doctor", help="say what is wrong and what to do")
    command.add_argument("--json", action="store_true")
    add_joining(command)
    command.set_defaults(run=doctor)


async def doctor(args: argparse.Namespace) -> int:
    """Exit status 1 when something is wrong."""
    rows = [_versions(), _clock()]
    try:
        known = {row.name: row for row in explain(settings(args))}
    except MeshError as error:
        rows.append(("settings", False, str(error)))
        known = {}
    if known:
        changed = [
            f"{row.name} ({row.origin})" for row in known.values() if row.origin != "default"
        ]
        rows.append(("settings", True, "set: " + (", ".join(changed) or "none, all defaults")))
        row, keyring = _keys(args)
        rows += [row, await _port(known)]
        if keyring is not None:
            rows.append(await _multicast(known, args.cluster, keyring))
    if args.json:
        print(json.dumps([{"check": name, "ok": ok, "text": text} for name, ok, text in rows]))
    for name, ok, text in () if args.json else rows:
        print(f"{'ok   ' if ok else 'WRONG'} {name:10} {text}")
    return 0 if all(ok for _, ok, _ in rows) else 1


def _versions() -> Row:
    curve = bool(zmq.has("curve"))
    text = (
        f"mesh {version('durable-mesh')}, Python {platform.python_version()}, trio {version('trio')}, "
        f"pyzmq {zmq.__version__} (libzmq {zmq.zmq_version()}), PyNaCl {nacl.__version__}"
    )
    return "versions", curve, text if curve else f"{text}: this libzmq has no CURVE"


def _clock() -> Row:
    now = time.time()
    if now < EARLIEST:
        return "clock", False, "it was never set: others will take our announcements for expired"
    return "clock", True, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))


def _keys(args: argparse.Namespace) -> tuple[Row, Keyring | None]:
    source: dict[str, Any] = dict.fromkeys(KEY_SOURCES)
    origin = "nowhere"
    for level in read_levels(settings(args)):
        given = {name: level.values.get(name) for name in KEY_SOURCES}
        if any(given.values()):
            source, origin = given, level.origin
    try:
        keyring = load_keyring(**source)
        own = keyring.own(args.cluster)
    except SecurityError as error:
        return ("keys", False, str(error)), None
    generations = "one generation" if len(own) == 1 else "two generations, a rotation is under way"
    text = f"key {own[0].key_id.hex()} of {args.cluster} ({origin}), {generations}"
    return ("keys", True, text), keyring


def _goodbye(cluster: str, keyring: Keyring) -> bytes:
    """What the multicast test announces: the leave of a node nobody knows, which means nothing."""
    now_us = time.time_ns() // 1000
    farewell = Announcement(
        node=bytes(16), incarnation=now_us, issued_us=now_us, lifetime_s=60, host=bytes(8),
        clusters=(cluster,), endpoints=(), left=True,
    )  # fmt: skip
    return farewell.sign(keyring.own(cluster))


async def _port(known: dict[str, Setting]) -> Row:
    listen = known["listen"].value
    try:
        place = parse_place(listen, "listen")
        with trio.socket.socket() as probe:
            probe.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
            await probe.bind((place.host.replace("*", "") or "0.0.0.0", place.first))
        return "port", True, f"{listen} can be bound; addresses: {', '.join(addresses())}"
    except (MeshError, OSError) as error:
        return "port", False, f"{listen}: {error}; choose another `listen`, or port 0"


async def _multicast(known: dict[str, Setting], cluster: str, keyring: Keyring) -> Row:
    if known["zeroconf"].value == "False":
        seeds = known["seeds"].value
        if seeds == "()" and known["dns"].value == "()" and known["seeds_file"].value == "None":
            return "finding", False, "zeroconf is off and there are no seeds: nobody can be found"
        return "finding", True, f"zeroconf is off, seeds: {seeds}"
    finder = MdnsFinder("mesh-doctor")
    async with trio.open_nursery() as nursery:
        await nursery.start(finder.run, lambda found: None)
        await finder.announce(_goodbye(cluster, keyring), 9)
        await trio.sleep(1.5)
        problem = finder.problem()
        nursery.cancel_scope.cancel()
    if problem is None:
        return "finding", True, "multicast DNS works on this machine"
    return "finding", False, f"{problem}; give seeds instead (MESH_SEEDS=tcp://HOST:PORT)"
