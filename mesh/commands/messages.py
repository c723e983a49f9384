"""`mesh request`, `publish`, `subscribe`, `broadcast`, `serve`: the patterns of messaging from a shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from functools import partial

import trio
import trio.lowlevel

from ..node import Node
from ..protocol.interest import POLICIES
from ..service import Request, Service
from ..subscription import Subscription
from .options import (
    Commands,
    WrongUsage,
    add_count,
    add_headers,
    add_joining,
    add_payloads,
    given_once,
    joined,
    positive_seconds,
    seconds,
)
from .reaching import explain_no_members, wait_discovery
from .terminal import (
    jsonable,
    payload,
    payload_fields,
    print_stderr,
    stdin_lines,
    until_signal,
    until_stdout_closed,
    write_stdout,
    write_stdout_line,
)

DISCOVERY_S = 0.5
JSON_HELP = 'as JSON: {"payload": "text"}, or {"payload_base64": "..."} if it is not UTF-8'


def add(commands: Commands) -> None:
    _add_request(commands)
    _add_publish(commands)
    _add_subscribe(commands)
    _add_broadcast(commands)
    _add_serve(commands)


def _add_request(commands: Commands) -> None:
    command = commands.add_parser(
        "request", help="send a request and print the reply",
        description="Send a request to one member of a cluster, chosen by load, and print the "
        "reply unchanged,\nwith a line end on a terminal. Exit status 1 if no member answered.",
    )  # fmt: skip
    _add_target(command)
    command.add_argument(
        "--timeout", type=positive_seconds, metavar="SECONDS",
        help="timeout for each reply (default: MESH_REQUEST_TIMEOUT_S, mesh.toml, 5)",
    )  # fmt: skip
    command.add_argument(
        "--gather", action="store_true",
        help="ask every member; print a line for each, with the start of its node id. Exit status 1 "
        "unless all answered",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help=f"print the reply {JSON_HELP}")
    add_joining(command)
    command.set_defaults(run=request)


def _add_target(command: argparse.ArgumentParser) -> None:
    """Add the target and the payload."""
    command.add_argument("target", help="CLUSTER or CLUSTER/ENDPOINT")
    command.add_argument(
        "payload", nargs="?", default="", help="payload as text, or - for stdin (default: empty)"
    )


def _add_publish(commands: Commands) -> None:
    command = commands.add_parser(
        "publish", help="publish to a topic",
        description="Publish one message, or one per line of stdin. Exit status 1 if there were no "
        "subscribers.",
    )  # fmt: skip
    command.add_argument("topic", help="tokens joined by dots, such as orders.eu.created")
    add_payloads(command)
    command.add_argument(
        "--wait", type=seconds, default=DISCOVERY_S, metavar="SECONDS",
        help=f"how long to look for subscribers before publishing (default {DISCOVERY_S:g})",
    )  # fmt: skip
    add_headers(command)
    add_joining(command)
    command.set_defaults(run=publish)


def _add_subscribe(commands: Commands) -> None:
    command = commands.add_parser(
        "subscribe", help="print messages whose topics match a pattern",
        description="Print each message as TOPIC PAYLOAD and a line end. If payloads may contain "
        "line ends,\nuse --json.",
    )  # fmt: skip
    command.add_argument(
        "pattern", help="`*` matches one token, a final `>` one or more; quote them"
    )
    add_count(command, "messages")
    command.add_argument(
        "--when-full", choices=POLICIES, default=POLICIES[0],
        help="what to do if messages arrive faster than they are printed; with block, publishers "
        f"wait (default {POLICIES[0]})",
    )  # fmt: skip
    command.add_argument(
        "--json", action="store_true", help=f"print a JSON document per line, payload {JSON_HELP}"
    )
    add_joining(command)
    command.set_defaults(run=subscribe)


def _add_broadcast(commands: Commands) -> None:
    command = commands.add_parser(
        "broadcast", help="send a message to every member of a cluster",
        description="Send a message to every member of a cluster, without replies. Exit status 1 if "
        "there are none.",
    )  # fmt: skip
    _add_target(command)
    add_joining(command)
    command.set_defaults(run=broadcast)


def _add_serve(commands: Commands) -> None:
    command = commands.add_parser(
        "serve", help="run a member that echoes requests, for trying things out",
        description="Run a member of a cluster until SIGTERM or Ctrl-C. It can only echo (--echo); "
        "write services\nof your own in Python, see mesh.Service.",
    )  # fmt: skip
    command.add_argument(
        "--echo", action="store_true", help="answer every request with its own payload (required)"
    )
    command.add_argument(
        "--delay", type=seconds, default=0.0, metavar="SECONDS",
        help="wait this long before each reply (default 0)",
    )  # fmt: skip
    add_joining(command)
    command.set_defaults(run=serve)


async def request(args: argparse.Namespace) -> int:
    data = payload(args.payload)
    async with joined(args) as node:
        if args.gather:
            return await _gather(node, args, data)
        reply = await node.request(args.target, data, timeout=args.timeout)
        if args.json:
            print(json.dumps(payload_fields(reply)))
        else:
            write_stdout(reply)
        return 0


async def _gather(node: Node, args: argparse.Namespace, data: bytes) -> int:
    await _wait_first(node, args.target)
    failed = answered = 0
    async for member, answer in node.gather(args.target, data, timeout=args.timeout):
        is_reply = isinstance(answer, bytes)
        answered, failed = answered + is_reply, failed + (not is_reply)
        name = member.node.hex()
        if args.json:
            what = payload_fields(answer) if isinstance(answer, bytes) else {"error": str(answer)}
            await write_stdout_line(json.dumps({"node": name, **what}).encode())
        elif isinstance(answer, bytes):
            await write_stdout_line(name[:8].encode() + b"  " + answer)
        else:
            print_stderr(f"{name[:8]}: {answer}")
    if not answered and not failed:
        await explain_no_members(node)
    print_stderr(f"answered: {answered}, failed: {failed}")
    return 0 if answered and not failed else 1


async def _wait_first(node: Node, target: str) -> None:
    with node.within(node.config.settle_s):
        await node.wait_members(target.partition("/")[0])


async def publish(args: argparse.Namespace) -> int:
    data, headers = payload_of(args), given_once(args.header) or None
    async with joined(args) as node:
        await wait_discovery(node, args.wait)
        sent = await send_payloads(
            args, data, partial(node.publish, args.topic, headers=headers),
            trio.lowlevel.checkpoint, partial(_summary, node),
        )  # fmt: skip
        no_subscribers = 0 < sent <= node.statistics().publishing.nobody
        if no_subscribers and (near := get_close_matches(args.topic, node.interest(), n=1)):
            print_stderr(f"did you mean {near[0]}? It has subscribers")
        elif no_subscribers:
            await explain_no_members(node)
        print_stderr(_summary(node, sent))
        return 1 if no_subscribers else 0


def payload_of(args: argparse.Namespace) -> bytes:
    """Return the payload of a command that sends; empty with --lines. May block on stdin: call it before joining."""
    if args.lines and args.payload is not None:
        raise WrongUsage("--lines reads messages from stdin: omit the payload")
    return b"" if args.lines else payload("-" if args.payload is None else args.payload)


async def send_payloads(
    args: argparse.Namespace, data: bytes, send: Callable[[bytes], Awaitable[object]],
    finish: Callable[[], Awaitable[object]], summary: Callable[[int], str],
) -> int:  # fmt: skip
    """Send `data`, or each line as it comes, then `finish`. Return how many were sent.

    Args:
        summary: returns what to print after so many lines if sending is interrupted.
    """
    sent = 0
    try:
        if args.lines:
            async for line in stdin_lines():
                await send(line)
                sent += 1
        else:
            await send(data)
            sent = 1
        await finish()
    except BaseException:  # Also after Ctrl-C: the user must learn how many were sent.
        if args.lines and sent:
            print_stderr(summary(sent))
        raise
    return sent


def _summary(node: Node, count: int) -> str:
    nobody = node.statistics().publishing.nobody
    return f"published: {count}, without subscribers: {nobody}"


async def subscribe(args: argparse.Namespace) -> int:
    with until_signal() as stop:
        async with (
            joined(args) as node,
            node.subscribe(args.pattern, when_full=args.when_full) as messages,
        ):
            print_stderr(f"subscribed to {args.pattern}")
            with stop.scope:
                async with until_stdout_closed():
                    await _print(messages, args)
    return 0


async def _print(messages: Subscription, args: argparse.Namespace) -> None:
    seen = 0
    async for message in messages:
        if message.lost:
            print_stderr(f"messages of {message.topic} lost before this one: {message.lost}")
        if args.json:
            row = {
                "topic": message.topic, **payload_fields(message.payload),
                "sender": message.sender.hex(), "sequence": message.sequence,
                "lost": message.lost, "headers": jsonable(message.headers),
            }  # fmt: skip
            await write_stdout_line(json.dumps(row).encode())
        else:
            await write_stdout_line(message.topic.encode() + b" " + message.payload)
        seen += 1
        if args.count is not None and seen >= args.count:
            return


async def broadcast(args: argparse.Namespace) -> int:
    data = payload(args.payload)
    async with joined(args) as node:
        await _wait_first(node, args.target)
        count = await node.broadcast(args.target, data)
        if not count:
            await explain_no_members(node)
        print_stderr(f"sent to members: {count}")
        return 0 if count else 1


async def serve(args: argparse.Namespace) -> int:
    if not args.echo:
        raise WrongUsage("serve requires --echo; write other services in Python")
    service = Service(args.cluster)

    @service.request
    async def echo(request: Request) -> bytes:
        await trio.sleep(args.delay)
        return request.payload

    with until_signal() as stop:
        async with joined(args, service) as node:
            print_stderr(f"member of {args.cluster} at {' '.join(node.endpoints)}")
            with stop.scope:
                await trio.sleep_forever()
    return 0
