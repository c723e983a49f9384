"""Options that all commands which join the network share, valid values of options, and joining with them."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from security.errors import NoKey

from ..config import HEADERS_BYTES_MAX
from ..errors import KeyMissing, NoMembers, TooLarge
from ..joining import Memberships, join
from ..message import encode_headers
from ..node import Node
from .reaching import explain_no_members

CLUSTER = "console"
COUNT_DIGITS_MAX = 18
"""Every number of so many digits fits into 64 bits."""
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a family of commands adds its parsers; at run time argparse's class accepts no type parameter."""


class WrongUsage(Exception):
    """Options that do not go together; the exit status is 2."""


def seconds(text: str) -> float:
    """Parse a time in seconds, 0 or more."""
    return seconds_between(text, "0 or more")


def positive_seconds(text: str) -> float:
    """Parse a time in seconds, more than 0."""
    return seconds_between(text, "more than 0", least=math.ulp(0.0))


def seconds_between(
    text: str, wanted: str, *, least: float = 0.0, most: float = sys.float_info.max
) -> float:
    """Parse a time in seconds from `least` to `most`; `wanted` describes this range in the error."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:  # `not <=` also refuses NaN.
        raise argparse.ArgumentTypeError(f"want seconds, {wanted}, got {text!r}")
    return value


def count(text: str) -> int:
    """Parse a count, at least 1."""
    if not text.isdecimal() or len(text) > COUNT_DIGITS_MAX or int(text) < 1:
        wanted = f"a whole number, 1 or more, of up to {COUNT_DIGITS_MAX} digits"
        raise argparse.ArgumentTypeError(f"want {wanted}, got {text!r}")
    return int(text)


def path(text: str) -> Path:
    """Parse a path. An empty text, as of an unset variable, is an error and not the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("want a path, got ''")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~NAME of an unknown user.
        raise argparse.ArgumentTypeError(f"want a path, got {text!r}: {error}") from None


def nonempty_name(text: str) -> str:
    """Parse a name. An empty text, as of an unset variable, is an error and not the same as no name."""
    if not text:
        raise argparse.ArgumentTypeError("want a name, got ''")
    return text


def add_keys(command: argparse._ActionsContainer) -> None:
    """Add the options for keys; defaults: MESH_NETWORK_SECRET_FILE, MESH_KEYS_DIR, mesh.toml."""
    either = command.add_mutually_exclusive_group()
    either.add_argument(
        "--network-secret-file", type=path, metavar="FILE",
        help="network secret, created by `mesh keys new-network` "
        "(default: MESH_NETWORK_SECRET_FILE, then mesh.toml)",
    )  # fmt: skip
    either.add_argument(
        "--keys-dir", type=path, metavar="DIR",
        help="key files of clusters, created by `mesh keys new-cluster` "
        "(default: MESH_KEYS_DIR, then mesh.toml)",
    )  # fmt: skip


def add_joining(command: argparse.ArgumentParser, cluster: str = CLUSTER) -> None:
    """Add the options for joining; `cluster` is the default cluster."""
    group = command.add_argument_group("joining")
    group.add_argument(
        "--cluster", default=cluster, metavar="NAME", help=f"cluster to join as (default {cluster})"
    )
    group.add_argument(
        "--listen", metavar="ADDRESS",
        help="address to bind, tcp://HOST:PORT; port 0 means any free port "
        "(default: MESH_LISTEN, mesh.toml, tcp://0.0.0.0:0)",
    )  # fmt: skip
    group.add_argument(
        "--seed", action="append", dest="seeds", metavar="ADDRESS",
        help="address of a node, tcp://HOST:PORT; repeatable (default: MESH_SEEDS, mesh.toml)",
    )  # fmt: skip
    group.add_argument("--no-zeroconf", action="store_true", help="do not use multicast DNS")
    add_keys(group)
    group.add_argument(
        "--settle", type=seconds, dest="settle_s", metavar="SECONDS",
        help="how long to wait for the first member of a cluster (default: MESH_SETTLE_S, mesh.toml, 2)",
    )  # fmt: skip


def add_payloads(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that send: one payload, or one per line."""
    command.add_argument(
        "payload", nargs="?", help="payload as text, or - for all of stdin, unchanged (default: -)"
    )
    command.add_argument(
        "--lines", action="store_true", help="send each line of stdin as a message"
    )


def add_count(command: argparse.ArgumentParser, what: str) -> None:
    """Add --count, for commands that receive until they are told to end."""
    command.add_argument(
        "--count", type=count, metavar="N", help=f"exit after N {what} (default: no limit)"
    )


def add_headers(command: argparse.ArgumentParser) -> None:
    """Add --header, for commands that publish; the headers to send are `given_once(args.header) or None`."""
    command.add_argument(
        "--header", action="append", default=[], type=header, metavar="NAME=VALUE",
        help="header to send; repeatable; the value is read as JSON if valid, else as text",
    )  # fmt: skip


def header(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE as a header. Raises ArgumentTypeError if it cannot be sent."""
    name, value = name_and_value(text)
    try:
        encode_headers({name: value}, HEADERS_BYTES_MAX)
    except (TypeError, TooLarge) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name, value


def name_and_value(text: str, first: str = "NAME") -> tuple[str, Any]:
    """Parse NAME=VALUE, or what `first` calls the name; the value is read as JSON if it is valid, else as text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"want {first}=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def given_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values by name. Raises WrongUsage if a name was given twice, since either value may be meant."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise WrongUsage(f"{name} is given twice")
        found[name] = value
    return found


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return keywords for `join`; options that were not given are left to the environment and mesh.toml."""
    names = ("listen", "seeds", "network_secret_file", "keys_dir", "settle_s")
    given = {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
    if getattr(args, "no_zeroconf", False):
        given["zeroconf"] = False
    return given


@asynccontextmanager
async def joined(args: argparse.Namespace, what: Memberships | None = None) -> AsyncGenerator[Node]:
    """Join for the length of the block. After NoMembers, print why nobody was found, if that is known."""
    try:
        async with join(args.cluster if what is None else what, **settings(args)) as node:
            try:
                yield node
            except NoMembers:
                await explain_no_members(node)
                raise
    except KeyMissing as error:
        if not isinstance(error.__cause__, NoKey):
            raise
        hint = "or use --cluster NAME to join as a cluster whose key pair is present"
        raise KeyMissing(f"{error}, {hint}") from error.__cause__
