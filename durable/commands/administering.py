"""`mesh-broker vhosts`, `declare-vhost`, `permissions` and so on: vhosts, and what clusters may do in them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mesh.commands.options import Commands, nonempty_name
from mesh.commands.terminal import print_stderr

from ..client.connection import Connection
from ..definitions import ANYTHING
from ..errors import AccessRefused
from ..errors.root import nearest
from ..expressions import problem_of
from .listing import show_all
from .options import add_command, add_json, do_with_broker

KINDS = {
    "configure": "names allowed (default: none)", "write": "names allowed (default: none)",
    "read": "names allowed (default: none)",
    "capture": "patterns allowed in streams that it declares (default: none)",
}  # fmt: skip
SET_PERMISSION_HELP = """\
Set what a cluster may do in a vhost, replacing its previous permission. Each option takes a regular
expression that must match the whole name; one that is omitted allows nothing. That of --capture must
match the whole text of each pattern of a new stream, as 'orders\\..*' matches orders.* and orders.>;
for a stream in another vhost it is needed there and in `/`.
Until the first permission is set, everything is allowed; afterwards only what is permitted. This also
applies to `console`, the cluster that these commands join as: first give it --configure '.*'
--write '.*' --read '.*' --capture '.*'."""


def add(commands: Commands) -> None:
    command = add_command(commands, "vhosts", "list all vhosts of a running broker")
    add_json(command)
    do_with_broker(command, _vhosts)
    command = add_command(commands, "declare-vhost", "create a vhost if it does not exist")
    command.add_argument("name", help="use it afterwards with --vhost NAME")
    do_with_broker(command, _declare_vhost)
    command = add_command(
        commands, "delete-vhost", "delete a vhost, if it exists, and everything in it"
    )
    command.add_argument("name", type=nonempty_name)
    do_with_broker(command, _delete_vhost)
    command = add_command(commands, "permissions", "list what clusters may do in a vhost")
    add_json(command)
    do_with_broker(command, _permissions)
    command = commands.add_parser(
        "set-permission",
        help="set what a cluster may do in a vhost",
        description=SET_PERMISSION_HELP,
    )
    command.add_argument(
        "of", metavar="CLUSTER", help="cluster that gets the permission (not --broker)"
    )
    for kind, allows in KINDS.items():
        command.add_argument(f"--{kind}", default="", metavar="EXPRESSION", help=allows)
    do_with_broker(command, _set_permission)
    command = add_command(
        commands, "clear-permission", "remove the permission of a cluster in a vhost"
    )
    command.add_argument("of", metavar="CLUSTER")
    do_with_broker(command, _clear_permission)


async def _vhosts(broker: Connection, args: argparse.Namespace) -> None:
    show_all(args, await broker.vhosts(), str)


async def _declare_vhost(broker: Connection, args: argparse.Namespace) -> None:
    await broker.create_vhost(args.name)
    print_stderr(f"vhost {args.name} declared")


async def _delete_vhost(broker: Connection, args: argparse.Namespace) -> None:
    if await broker.delete_vhost(args.name):
        print_stderr(f"vhost {args.name} deleted")
    else:
        print_stderr(
            f"vhost {args.name} does not exist{_suggestion(args.name, await broker.vhosts())}"
        )


async def _permissions(broker: Connection, args: argparse.Namespace) -> None:
    found = (await broker.export_definitions())["permissions"]
    nothing = "no permissions are set: every trusted cluster may do everything"
    show_all(args, found, _permission_line, nothing)


def _permission_line(one: dict[str, Any]) -> str:
    if one.get("configure") and not problem_of(one["configure"]):
        one = {"capture": ANYTHING, **one}  # An earlier broker does not know it, and allows it.
    allowed = (f"{kind} {one[kind]!r}{_note(one[kind])}" for kind in KINDS if one.get(kind))
    return f"{one['cluster']}: {', '.join(allowed) or 'nothing'}"


def _note(expression: object) -> str:
    return " (invalid, grants nothing)" if problem_of(expression) else ""


async def _set_permission(broker: Connection, args: argparse.Namespace) -> None:
    await broker.set_permission(args.of, **{kind: getattr(args, kind) for kind in KINDS})
    print_stderr(f"permission of {args.of} set")
    if args.vhost not in await broker.vhosts():
        here = f"cluster {args.cluster}, which this command joined as, has no permissions in vhost {args.vhost}"
        print_stderr(f"{here}: to change this, use --cluster to join as one that has")


async def _clear_permission(broker: Connection, args: argparse.Namespace) -> None:
    if await broker.clear_permission(args.of):
        print_stderr(f"permission of {args.of} removed")
        return
    known: list[str] = []
    with suppress(AccessRefused):
        permissions = (await broker.export_definitions())["permissions"]
        known = [one["cluster"] for one in permissions]
    print_stderr(f"there was no permission of {args.of}{_suggestion(args.of, known)}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f": did you mean {near!r}?" if near else ""
