"""`mesh doctor`: finds what is wrong on this machine, and says what to do about it.

It reads settings and keys as `join` does; then it binds the ports, connects to the seeds, tries multicast, and
at last joins and looks which members there are.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from secrets import token_hex

import nacl
import trio
import zmq

from discovery.finder import Finder
from discovery.interfaces import addresses
from discovery.mdns import MdnsFinder, MdnsSettings
from security.announcement import Announcement
from security.errors import SecurityError
from security.files import load_keyring
from security.keyring import FileKeyring, Keyring

from ..config import MeshConfig
from ..errors import MeshError
from ..finders import make_finders
from ..joining import join
from ..listening import WILDCARDS, binds_of, parse_ports
from ..names import check_cluster
from ..protocol.seeds import REFUSED_CLOCK
from ..settings import KEYWORD, key_source, list_settings, load_config
from .options import Commands, add_joining, settings
from .reaching import endpoint_problems

Row = tuple[str, bool, str]
EARLIEST_S = 1_700_000_000
"""A clock before this (2023) was never set; others would take our announcements for expired."""
SET_CLOCK = "set it, for example with `timedatectl set-ntp true`"
FINDING_S = MdnsSettings().echo_s + 0.5
"""How long each finder is watched: a little longer than MdnsFinder waits for its own echo."""
DISCARD_PORT = 9
"""Announced by the multicast test; nobody dials it, because the announcement is a goodbye."""
GOODBYE_LIFETIME_S = 60


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "doctor", help="find problems and say how to fix them",
        description="Check versions, clock, settings, keys, ports, seeds and multicast, then join "
        "and list\nthe clusters found. Exit status 1 if there is a problem.",
    )  # fmt: skip
    command.add_argument(
        "--target", metavar="CLUSTER", help="also check that this cluster can be reached"
    )
    command.add_argument(
        "--json", action="store_true", help="print one JSON document, a list of checks"
    )
    add_joining(command)
    command.set_defaults(run=doctor)


async def doctor(args: argparse.Namespace) -> int:
    rows: list[Row] = []

    def report(*found: Row) -> None:
        rows.extend(found)
        for name, ok, text in () if args.json else found:
            print(f"{'ok   ' if ok else 'WRONG'} {name:10} {text}", flush=True)

    report(_versions())
    clock = _clock()
    if not clock[1]:
        report(clock)
    await _run_checks(args, report)
    if all(name != "clock" for name, _, _ in rows):  # Nor did other checks find it wrong.
        report(clock)
    if args.json:
        print(json.dumps([{"check": name, "ok": ok, "text": text} for name, ok, text in rows]))
    return 0 if all(ok for _, ok, _ in rows) else 1


async def _run_checks(args: argparse.Namespace, report: Callable[..., None]) -> None:
    """Run the checks that need valid settings; stop where `join` would stop."""
    try:
        if args.target is not None:
            check_cluster(args.target)
        config = load_config((args.cluster,), settings(args))
        finders = make_finders(config, bytes(16))
        parse_ports(config.listen, "listen")
        report(_changed_settings(args))
    except MeshError as error:
        report(("settings", False, str(error)))
        return
    try:
        keyring = load_keyring(**config.key_settings)
        keys = _keys(args, keyring)
    except SecurityError as error:
        report(("keys", False, str(error)))
        return
    report(*keys)
    ports = await _ports(config, keyring)
    report(ports)
    report(*await _seeds(config))
    report(*await _finders(config, finders, keyring))
    if all(ok for _, ok, _ in (*keys, ports)):
        report(*await _members(args, config))


def _versions() -> Row:
    curve = bool(zmq.has("curve"))
    text = (
        f"mesh {version('durable-mesh')}, Python {platform.python_version()}, trio {version('trio')}, "
        f"pyzmq {zmq.__version__} (libzmq {zmq.zmq_version()}), PyNaCl {nacl.__version__}"
    )
    missing = "this libzmq has no CURVE: install pyzmq from its wheel"
    return "versions", curve, text if curve else f"{text}: {missing}"


def _clock() -> Row:
    now = time.time()
    if now < EARLIEST_S:
        why = f"the clock was never set, so others consider our announcements expired: {SET_CLOCK}"
        return "clock", False, why
    return "clock", True, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))


def _changed_settings(args: argparse.Namespace) -> Row:
    rows = list_settings(settings(args))
    changed = [f"{row.name} ({_origin(row.origin)})" for row in rows if row.origin != "default"]
    return "settings", True, "set: " + (", ".join(changed) or "none, all defaults")


def _origin(origin: str) -> str:
    # On the command line, keywords of `join` are options.
    return "option" if origin == KEYWORD else origin


def _keys(args: argparse.Namespace, keyring: Keyring) -> list[Row]:
    """Check the keys. Raises SecurityError if there is no key to join with."""
    own = keyring.own(args.cluster)
    _, origin = key_source(settings(args))
    generations = "one generation" if len(own) == 1 else "two generations, rotation in progress"
    text = f"key {own[0].key_id.hex()} of {args.cluster} ({_origin(origin)}), {generations}"
    if not isinstance(keyring, FileKeyring):
        return [("keys", True, f"{text}; from a network secret, which trusts all its clusters")]
    pairs = keyring.introduction_keys()
    held = {pair.cluster for pair in pairs if pair.secret is not None}
    trusted = {pair.cluster for pair in pairs} - held
    names = ", ".join(sorted(held)), ", ".join(sorted(trusted)) or "none"
    rows = [("keys", True, f"{text}; held: {names[0]}; also trusted: {names[1]}")]
    if args.target is not None and not keyring.trusted(args.target):
        fix = f"copy {args.target}.public from its members into the key directory"
        rows.append(("keys", False, f"no public key of {args.target}: {fix}"))
    return rows


async def _ports(config: MeshConfig, keyring: Keyring) -> Row:
    """Check that every address that `join` would bind can be bound, and can be announced."""
    try:
        binds = binds_of(config, keyring)
        with ExitStack() as stack:
            for bind in binds:
                host, _, port = bind.uri.removeprefix("tcp://").rpartition(":")
                family = trio.socket.AF_INET6 if "[" in host else trio.socket.AF_INET
                probe = stack.enter_context(trio.socket.socket(family))
                probe.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
                address = "" if host == "*" else host.strip("[]")
                await probe.bind((address, 0 if port == "*" else int(port)))
                probe.listen()
                bind.announced_uris(f"tcp://{host}:{probe.getsockname()[1]}")
        return "ports", True, f"{config.listen} can be bound; addresses: {', '.join(addresses())}"
    except MeshError as error:
        return "ports", False, str(error)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return "ports", False, f"{config.listen}: {why}; choose another `listen`, or port 0"


def _is_own_address(config: MeshConfig, endpoint: str) -> bool:
    """Return whether a seed is this node itself: all nodes often have the same list of seeds."""
    ports = parse_ports(config.listen, "listen")
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    own_hosts = addresses() if ports.host in WILDCARDS else [ports.host]
    return host in own_hosts and 0 < ports.first <= int(port) <= ports.last


async def _seeds(config: MeshConfig) -> list[Row]:
    rows: list[Row] = []
    for endpoint, problem in (await endpoint_problems(config.seeds)).items():
        if problem is not None and _is_own_address(config, endpoint):
            problem = None
            rows.append(("seed", True, f"{endpoint} is this node's own address"))
        else:
            rows.append(("seed", problem is None, f"{endpoint} {problem or 'answers'}"))
    return rows


async def _finders(config: MeshConfig, finders: tuple[Finder, ...], keyring: Keyring) -> list[Row]:
    """Report each finder's problem after a while, except for seeds, which `_seeds` checks."""
    others = [one for one in finders if not isinstance(one, MdnsFinder) and one.source != "seeds"]
    rows: list[Row] = []
    if not finders:
        rows.append(("finding", False, "zeroconf is off and no seeds are set: set `seeds`"))
    async with trio.open_nursery() as nursery:
        mdns = None
        if config.zeroconf:
            # A random name: two doctors in one network must not be taken for one node.
            mdns = MdnsFinder(token_hex(8), interfaces=config.zeroconf_interfaces or None)
            await nursery.start(mdns.run, lambda found: None)
            await mdns.announce(_goodbye(config.clusters[0], keyring), DISCARD_PORT)
        for finder in others:
            await nursery.start(finder.run, lambda found: None)
        if mdns is not None or others:
            await trio.sleep(FINDING_S)
        for finder in others:
            problem = finder.problem()
            rows.append((finder.source, problem is None, problem or "can be read"))
        if mdns is not None:
            rows.append(_multicast(mdns.problem(), alone=len(finders) == 1))
        nursery.cancel_scope.cancel()
    return rows


def _multicast(problem: str | None, *, alone: bool) -> Row:
    if problem is None:
        return "zeroconf", True, "multicast DNS works on this machine"
    if alone:
        return "zeroconf", False, f"{problem}; use seeds instead (MESH_SEEDS=tcp://HOST:PORT)"
    return "zeroconf", True, f"{problem}; nodes can only be found by the other means"


def _goodbye(cluster: str, keyring: Keyring) -> bytes:
    """Return the announcement of the multicast test: the leave of an unknown node, which has no effect."""
    now_us = time.time_ns() // 1000
    farewell = Announcement(
        node=bytes(16), incarnation=now_us, issued_us=now_us, lifetime_s=GOODBYE_LIFETIME_S,
        host=bytes(8), clusters=(cluster,), endpoints=(), left=True,
    )  # fmt: skip
    return farewell.sign(keyring.own(cluster))


async def _members(args: argparse.Namespace, config: MeshConfig) -> list[Row]:
    """Join, and report the members. To find none is wrong if there is a target, or a seed that is not this node."""
    try:
        async with join(args.cluster, **settings(args)) as node:
            with node.within(config.settle_s):
                if args.target is not None:
                    await node.wait_members(args.target)
                else:
                    await anext(node.watch())
            clusters = sorted({name for one in node.members() for name in one.clusters})
            target_found = args.target is None or args.target in clusters
            clock_differs = REFUSED_CLOCK in node.statistics().refused
    except MeshError as error:
        return [("members", False, str(error))]
    expects_members = any(not _is_own_address(config, seed) for seed in config.seeds)
    if not clusters and (expects_members or args.target is not None):
        pairs = "our public key, and do we have their current one"
        same = pairs if config.keys_dir else "the same network secret"
        why = (
            f"no node let us in within {config.settle_s:g} s; if seeds answer, do they have {same}?"
        )
        skew = f"more than {config.clock_skew_s} s off that of a seed: {SET_CLOCK}, there and here"
        return [("members", False, why)] + [("clock", False, skew)] * clock_differs
    if not target_found:
        return [("members", False, f"no members of {args.target}; found: {', '.join(clusters)}")]
    return [("members", True, f"of {', '.join(clusters)}" if clusters else "no other members yet")]
