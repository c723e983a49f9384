"""Options all commands that join the network share, and how they join."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from ..joining import Joins, join
from ..node import Node

STDIN_BYTES_MAX = 1 << 30


def add_joining(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("joining")
    group.add_argument("--cluster", default="console", help="cluster to join as (default console)")
    group.add_argument("--listen", help="address to bind, tcp://HOST:PORT")
    group.add_argument(
        "--seed", action="append", dest="seeds", help="address of a node; repeatable"
    )
    group.add_argument("--no-zeroconf", action="store_true", help="do not use multicast DNS")
    group.add_argument("--network-secret-file", type=Path, help="file made by keys new-network")
    group.add_argument("--keys-dir", type=Path, help="directory made by keys new-cluster")
    group.add_argument("--settle", type=float, dest="settle_s", help="seconds to wait for members")


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords for `join`; what was not given is left to the environment and mesh.toml."""
    names = ("listen", "seeds", "network_secret_file", "keys_dir", "settle_s")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.no_zeroconf:
        given["zeroconf"] = False
    return given


def joined(
    args: argparse.Namespace, what: Joins | None = None
) -> AbstractAsyncContextManager[Node]:
    return join(args.cluster if what is None else what, **settings(args))


def payload(text: str) -> bytes:
    """The payload argument; `-` reads it from stdin."""
    return sys.stdin.buffer.read(STDIN_BYTES_MAX) if text == "-" else text.encode()


def out(data: bytes) -> None:
    """Data goes to stdout as it is, with a line end for people."""
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def words(text: str) -> None:
    """Words go to stderr."""
    print(f"mesh: {text}", file=sys.stderr, flush=True)


def readable(data: bytes) -> str:
    """Payload as text for JSON; bytes that are no UTF-8 as escapes."""
    return data.decode("utf-8", "backslashreplace")
