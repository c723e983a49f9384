"""`mesh-broker declare-queue`, `bind`, `delete-queue`, `purge` and so on: what a vhost has, from a shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mesh.commands.options import Commands
from mesh.commands.terminal import words

from ..client.connection import Connection
from ..definition_forms import from_plain
from .options import add_reaching, reached

Do = Callable[[Connection, argparse.Namespace], Awaitable[None]]
MADE = {
    "queue": "max_length=1000 ttl_s=60 durability=memory",
    "exchange": "type=topic alternate=unrouted",
    "stream": "max_age_s=86400 'patterns=[\"orders.>\"]'",
}
ONE = {"queue": "a queue", "exchange": "an exchange", "stream": "a stream"}


def add(commands: Commands) -> None:
    for kind, example in MADE.items():
        one = ONE[kind]
        command = _add(commands, f"declare-{kind}", f"make {one}, or make sure that it is so")
        command.add_argument("name")
        command.add_argument(
            "settings", nargs="*", metavar="FIELD=VALUE", type=_field,
            help=f"as {example}; values are JSON, or else text",
        )  # fmt: skip
        _run(command, partial(_declare, kind))
    for kind, one in ONE.items():
        command = _add(commands, f"delete-{kind}", f"delete {one}, if it is there")
        command.add_argument("name")
        if kind != "stream":
            command.add_argument("--if-unused", action="store_true", help="only if nobody uses it")
        if kind == "queue":
            command.add_argument("--if-empty", action="store_true", help="only without messages")
        _run(command, partial(_delete, kind))
    command = _add(commands, "declare-vhost", "make a vhost, or make sure that it is there")
    command.add_argument("name", help="--vhost NAME leads there afterwards")
    _run(command, _declare_vhost)
    for verb in ("bind", "unbind"):
        command = _add(commands, verb, "route from an exchange" if verb == "bind" else "end that")
        command.add_argument("exchange")
        command.add_argument("destination", help="a queue or stream")
        command.add_argument("key", nargs="?", default="", help="routing key or pattern")
        command.add_argument("--to-exchange", action="store_true", help="it is an exchange")
        command.add_argument(
            "--argument", action="append", default=[], type=_setting, metavar="NAME=VALUE",
            help="of a headers exchange; repeatable",
        )  # fmt: skip
        _run(command, partial(_bind, verb))
    command = _add(commands, "delete-cursor", "forget how far a named reader came in a stream")
    command.add_argument("stream")
    command.add_argument("cursor", help="as `status --json` shows it")
    _run(command, _delete_cursor)
    command = _add(commands, "purge", "drop what is ready in a queue")
    command.add_argument("name")
    _run(command, _purge)


def _add(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _run(command: argparse.ArgumentParser, do: Do) -> None:
    async def run(args: argparse.Namespace) -> int:
        async with reached(args) as broker:
            await do(broker, args)
        return 0

    add_reaching(command)
    command.set_defaults(run=run)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"want FIELD=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _field(text: str) -> tuple[str, Any]:
    name, value = _setting(text)
    if name == "name":
        raise argparse.ArgumentTypeError(f"the name stands before the settings, got {text!r}")
    return name, value


async def _declare(kind: str, broker: Connection, args: argparse.Namespace) -> None:
    fields = dict(args.settings)
    from_plain(kind, {**fields, "name": args.name}).check()
    await getattr(broker, f"declare_{kind}")(args.name, **fields)
    words(f"{kind} {args.name} is there")


async def _declare_vhost(broker: Connection, args: argparse.Namespace) -> None:
    await broker.create_vhost(args.name)
    words(f"vhost {args.name} is there")


async def _delete(kind: str, broker: Connection, args: argparse.Namespace) -> None:
    if kind == "queue":
        gone = await broker.delete_queue(
            args.name, if_empty=args.if_empty, if_unused=args.if_unused
        )
        words(
            f"queue {args.name} was not there" if gone is None else f"deleted with {gone} messages"
        )
        return
    if kind == "exchange":
        await broker.delete_exchange(args.name, if_unused=args.if_unused)
    else:
        await broker.delete_stream(args.name)
    words(f"{kind} {args.name} is not there any more")


async def _delete_cursor(broker: Connection, args: argparse.Namespace) -> None:
    await broker.delete_cursor(args.stream, args.cursor)
    words(f"cursor {args.cursor} of stream {args.stream} is not there any more")


async def _bind(verb: str, broker: Connection, args: argparse.Namespace) -> None:
    do = broker.bind if verb == "bind" else broker.unbind
    await do(
        args.exchange, args.destination, args.key, to_exchange=args.to_exchange,
        arguments=dict(args.argument),
    )  # fmt: skip
    ends = f"{args.exchange} to {args.destination}"
    words(f"{ends} is bound" if verb == "bind" else f"{ends} is not bound so any more")


async def _purge(broker: Connection, args: argparse.Namespace) -> None:
    words(f"messages dropped: {await broker.purge_queue(args.name)}")
