"""Options shared by several commands, and the connection of those that talk to a broker."""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from mesh.commands.options import (
    Commands,
    WrongUsage,
    add_joining,
    joined,
    nonempty_name,
    positive_seconds,
)
from mesh.commands.reaching import explain_no_members

from ..broker.directory import DEFAULT_VHOST
from ..client.connection import Connection, connect
from ..errors import BrokerLost, InUse, InvalidDefinition, UnknownQueue

Do = Callable[[Connection, argparse.Namespace], Awaitable[None]]
BROKER = "broker"
TIMEOUT_S = 10.0
SIZE = re.compile(r"(\d+)(?:([KMG])(?:i?B)?|B)?", re.IGNORECASE)
UNITS = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """Parse a size in bytes: 1000, 64K, 256M, 1G; K is 1024."""
    matched = SIZE.fullmatch(text.strip()) if text.isascii() else None
    if matched is None:
        raise argparse.ArgumentTypeError(
            f"want a size such as 65536, 64K, 256M or 1G, got {text!r}"
        )
    unit = matched[2]
    return int(matched[1]) * UNITS[unit and unit.upper()]


def sizes(number: float) -> str:
    """Format a size for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def add_broker_options(
    command: argparse.ArgumentParser, vhost: str | None = DEFAULT_VHOST,
    vhost_text: str = DEFAULT_VHOST,
) -> None:  # fmt: skip
    """Add the options of commands that talk to a running broker; help shows `vhost_text` as the default of `vhost`."""
    group = command.add_argument_group("broker")
    group.add_argument(
        "--broker", default=BROKER, metavar="CLUSTER",
        help=f"cluster that the broker serves (default {BROKER})",
    )  # fmt: skip
    group.add_argument(
        "--vhost",
        type=nonempty_name,
        default=vhost,
        metavar="V",
        help=f"vhost (default {vhost_text})",
    )
    group.add_argument(
        "--timeout", type=positive_seconds, default=TIMEOUT_S, metavar="SECONDS",
        help=f"timeout for an answer (default {TIMEOUT_S:g})",
    )  # fmt: skip
    add_joining(command)


def add_command(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    """Add a command whose one line in the list, `text`, is also its whole description."""
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def do_with_broker(command: argparse.ArgumentParser, do: Do) -> None:
    """Let a command connect to a running broker and call `do`; exit status 0 unless that raises.

    InvalidDefinition is wrong usage here, because every value was typed.
    """

    async def run(args: argparse.Namespace) -> int:
        async with connected(args) as broker:
            with wrong_usage(), naming_options():
                await do(broker, args)
        return 0

    add_broker_options(command)
    command.set_defaults(run=run)


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON document")


@contextmanager
def wrong_usage() -> Iterator[None]:
    """Report InvalidDefinition in the block as wrong usage: all its values were typed, whatever the broker has."""
    try:
        yield
    except InvalidDefinition as error:
        raise WrongUsage(str(error)) from None


@contextmanager
def naming_options() -> Iterator[None]:
    """Let an error in the block advise an option of the command instead of an argument of Python."""
    try:
        yield
    except (InUse, UnknownQueue) as error:
        if error.flag:
            option = f"--{error.flag.replace('_', '-')}"
            error.args = (f"{str(error).removesuffix(error.flag)}{option}",)
        raise


@asynccontextmanager
async def connected(args: argparse.Namespace) -> AsyncGenerator[Connection]:
    """Connect for the length of the block. If no broker is reached, tell why on stderr, if that is known."""
    async with joined(args) as node:
        with wrong_usage():
            broker = connect(node, cluster=args.broker, vhost=args.vhost, timeout=args.timeout)
        try:
            yield broker
        except BrokerLost:
            await explain_no_members(node)
            raise
