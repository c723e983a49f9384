"""`mesh members`: lists the members and their states."""

from __future__ import annotations

import argparse
import json

from ..names import short_id
from ..protocol.membership import Member
from .options import Commands, add_joining, joined, seconds
from .reaching import explain_no_members, wait_discovery
from .terminal import print_stderr

DISCOVERY_S = 1.0


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "members", help="list members and their state",
        description="List the members found. Exit status 1 if there are none.",
    )  # fmt: skip
    command.add_argument(
        "of", metavar="CLUSTER", nargs="?", help="cluster to list (default: all clusters)"
    )
    command.add_argument("--watch", action="store_true", help="keep running and print every change")
    command.add_argument("--json", action="store_true", help="print one JSON document per line")
    command.add_argument(
        "--wait", type=seconds, default=DISCOVERY_S, metavar="SECONDS",
        help=f"how long to look for members (default {DISCOVERY_S:g})",
    )  # fmt: skip
    add_joining(command)
    command.set_defaults(run=members)


async def members(args: argparse.Namespace) -> int:
    async with joined(args) as node:
        if args.watch:
            async for change in node.watch(args.of):
                show(change.member, change.kind, as_json=args.json)
        await wait_discovery(node, args.wait)
        found = node.members(args.of)
        for member in sorted(found, key=lambda one: (one.clusters, one.node)):
            show(member, member.state.value, as_json=args.json)
        if not found and node.members():
            print_stderr(f"no members of {args.of}; `mesh members` lists those of other clusters")
        elif not found:
            await explain_no_members(node)
        return 0 if found else 1


def show(member: Member, state: str, *, as_json: bool) -> None:
    if as_json:
        row = {
            "node": member.node.hex(), "clusters": member.clusters, "state": state,
            "endpoints": member.endpoints, "reason": member.reason,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
    else:
        clusters, where = ",".join(member.clusters), " ".join(member.endpoints)
        print(f"{short_id(member.node)}  {clusters:20} {state:8} {where}", flush=True)
