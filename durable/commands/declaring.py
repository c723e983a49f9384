"""`mesh-broker declare-queue`, `bind`, `delete-queue`, `purge` and so on: queues, exchanges and streams."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from mesh.commands.options import (
    Commands,
    WrongUsage,
    given_once,
    name_and_value,
    nonempty_name,
)
from mesh.commands.terminal import print_stderr

from ..client.connection import Connection
from ..definition_forms import from_plain
from ..errors import InvalidDefinition
from .options import add_command, do_with_broker

EXAMPLES = {
    "queue": "max_length=1000 ttl_s=60 durability=memory",
    "exchange": "type=topic alternate=unrouted",
    "stream": "max_age_s=86400 'patterns=[\"orders.>\"]'",
}
WITH_ARTICLE = {"queue": "a queue", "exchange": "an exchange", "stream": "a stream"}

OUTCOMES = {True: "deleted", False: "does not exist"}


def add(commands: Commands) -> None:
    for kind, example in EXAMPLES.items():
        one = WITH_ARTICLE[kind]
        command = add_command(
            commands,
            f"declare-{kind}",
            f"create {one}, or check that it exists with these settings",
        )
        command.add_argument("name")
        command.add_argument(
            "settings", nargs="*", metavar="FIELD=VALUE", type=_field,
            help=f"such as {example}; a value is read as JSON if valid, else as text",
        )  # fmt: skip
        do_with_broker(command, partial(_declare, kind))
    for kind, one in WITH_ARTICLE.items():
        command = add_command(commands, f"delete-{kind}", f"delete {one} if it exists")
        command.add_argument("name", type=nonempty_name)
        if kind != "stream":
            command.add_argument(
                "--if-unused", action="store_true", help="only if it is not in use"
            )
        if kind == "queue":
            command.add_argument(
                "--if-empty", action="store_true", help="only if it has no messages"
            )
        do_with_broker(command, partial(_delete, kind))
    for verb in ("bind", "unbind"):
        command = add_command(
            commands,
            verb,
            "bind a queue, stream or exchange to an exchange"
            if verb == "bind"
            else "remove a binding",
        )
        command.add_argument("exchange")
        command.add_argument("destination", help="queue or stream")
        command.add_argument("key", nargs="?", default="", help="routing key or pattern")
        command.add_argument(
            "--to-exchange", action="store_true", help="the destination is an exchange"
        )
        command.add_argument(
            "--argument", action="append", default=[], type=name_and_value, metavar="NAME=VALUE",
            help="binding argument for a headers exchange; repeatable",
        )  # fmt: skip
        do_with_broker(command, partial(_bind, verb))
    command = add_command(
        commands,
        "delete-cursor",
        "delete a cursor, the stored position of a named reader in a stream",
    )
    command.add_argument("stream", type=nonempty_name)
    command.add_argument("cursor", help="name of the cursor, as listed by `cursors`")
    do_with_broker(command, _delete_cursor)
    command = add_command(commands, "purge", "drop all ready messages of a queue")
    command.add_argument("name", type=nonempty_name)
    do_with_broker(command, _purge)


class Given(NamedTuple):
    """The value of a field, and how it was written."""

    value: Any
    text: str


def _field(text: str) -> tuple[str, Given]:
    name, value = name_and_value(text, "FIELD")
    if name == "name":
        raise argparse.ArgumentTypeError(f"give the name before the settings, got {text!r}")
    return name, Given(value, text.partition("=")[2])


def checked_fields(kind: str, name: str, given: Mapping[str, Given]) -> dict[str, Any]:
    """Return the fields' values. Raises InvalidDefinition, WrongUsage: a value that was read as JSON must be text."""
    fields = {field: one.value for field, one in given.items()}
    try:
        from_plain(kind, {**fields, "name": name}).check()
    except InvalidDefinition as error:
        one = given.get(error.field)
        if one is None or isinstance(one.value, str | list | dict):
            raise
        try:
            from_plain(kind, {**fields, "name": name, error.field: one.text}).check()
        except InvalidDefinition as other:
            if other.allowed == error.allowed:  # Text would be as wrong.
                raise error from None
        as_text = shlex.quote(f"{error.field}={json.dumps(one.text)}")
        raise WrongUsage(f"{error}; for {one.text} as text, write {as_text}") from None
    return fields


async def _declare(kind: str, broker: Connection, args: argparse.Namespace) -> None:
    # Check before the call: a field `self` would be a TypeError, which the user could not relate to the command.
    fields = checked_fields(kind, args.name, given_once(args.settings))
    await getattr(broker, f"declare_{kind}")(args.name, **fields)
    # It is gone with this command, which nobody would expect of a queue that was "declared".
    gone = kind == "queue" and fields.get("exclusive")
    note = ", and deleted with this command's connection, because it is exclusive" if gone else ""
    print_stderr(f"{kind} {args.name} declared{note}")


async def _delete(kind: str, broker: Connection, args: argparse.Namespace) -> None:
    if kind == "queue":
        messages = await broker.delete_queue(
            args.name, if_empty=args.if_empty, if_unused=args.if_unused
        )
        print_stderr(
            f"queue {args.name} does not exist"
            if messages is None
            else f"deleted with {messages} messages"
        )
        return
    if kind == "exchange":
        existed = await broker.delete_exchange(args.name, if_unused=args.if_unused)
    else:
        existed = await broker.delete_stream(args.name)
    print_stderr(f"{kind} {args.name} {OUTCOMES[existed]}")


async def _delete_cursor(broker: Connection, args: argparse.Namespace) -> None:
    existed = await broker.delete_cursor(args.stream, args.cursor)
    print_stderr(f"cursor {args.cursor} of stream {args.stream} {OUTCOMES[existed]}")


async def _bind(verb: str, broker: Connection, args: argparse.Namespace) -> None:
    call = broker.bind if verb == "bind" else broker.unbind
    removed = await call(
        args.exchange, args.destination, args.key, to_exchange=args.to_exchange,
        arguments=given_once(args.argument),
    )  # fmt: skip
    became = {None: "bound", True: "binding removed", False: "there was no such binding"}
    print_stderr(f"{args.exchange} to {args.destination}: {became[removed]}")


async def _purge(broker: Connection, args: argparse.Namespace) -> None:
    print_stderr(f"messages dropped: {await broker.purge_queue(args.name)}")
