"""Printing messages until a signal, `--count` or `--idle` ends it: what `consume` and `read` have in common."""

from __future__ import annotations

import argparse
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from mesh.commands.messages import JSON_HELP
from mesh.commands.options import add_count, positive_seconds
from mesh.commands.terminal import until_signal, until_stdout_closed

from ..client.connection import Connection
from ..client.delivery import Delivery
from ..client.feed import Feed
from .options import connected, wrong_usage

F = TypeVar("F", bound=Feed)


def add_printing(command: argparse.ArgumentParser) -> None:
    """Add options for when the command ends, and what of each message is printed."""
    add_count(command, "messages")
    command.add_argument(
        "--idle", type=positive_seconds, default=math.inf, metavar="SECONDS",
        help="exit if no message arrives for this long (default: no limit)",
    )  # fmt: skip
    command.add_argument(
        "--json", action="store_true", help=f"print a JSON document per line, payload {JSON_HELP}"
    )


async def print_messages(
    args: argparse.Namespace, open_feed: Callable[[Connection], Awaitable[F]],
    handle: Callable[[F, Delivery], Awaitable[None]],
) -> int:  # fmt: skip
    """Call `handle` with each message of the opened feed, one after the other. Return the exit status."""
    with until_signal() as stop:
        async with connected(args) as broker, AsyncExitStack() as leaving:
            # A signal also ends the wait for an answer, but not the wait until acks or the cursor are stored.
            with stop.scope:
                with wrong_usage():
                    feed = await open_feed(broker)
                await leaving.enter_async_context(feed)
                async with until_stdout_closed():
                    async for message in _until_enough(feed, args):
                        await handle(feed, message)
    return 0


async def _until_enough(feed: Feed, args: argparse.Namespace) -> AsyncIterator[Delivery]:
    """Yield at most --count messages, and stop when none has come for --idle."""
    seen = 0
    while args.count is None or seen < args.count:
        with feed.within(args.idle) as idle:
            message = await anext(feed)
        if idle.cancelled_caught:
            return
        yield message
        seen += 1
