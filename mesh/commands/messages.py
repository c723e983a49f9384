"""`mesh request`, `publish`, `subscribe`, `broadcast`, `serve`: the patterns from a shell."""

from __future__ import annotations

import argparse
import json
import signal
import sys

import trio
import trio.lowlevel

from ..protocol.interest import POLICIES
from ..service import Request, Service
from .options import add_joining, joined, out, payload, readable, words


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("request", help="ask one member, print its reply")
    command.add_argument("target", help="CLUSTER or CLUSTER/ENDPOINT")
    command.add_argument("payload", nargs="?", default="", help="text, or - for stdin")
    command.add_argument("--timeout", type=float)
    command.add_argument("--gather", action="store_true", help="ask every member")
    command.add_argument("--json", action="store_true")
    _finish(command, request)
    command = commands.add_parser("publish", help="publish to a topic")
    command.add_argument("topic")
    command.add_argument("payload", nargs="?", default="-", help="text, or - for stdin")
    command.add_argument("--lines", action="store_true", help="a message per line of stdin")
    command.add_argument("--wait", type=float, default=0.5, help="seconds to find subscribers")
    _finish(command, publish)
    command = commands.add_parser("subscribe", help="print messages of a pattern")
    command.add_argument("pattern")
    command.add_argument("--count", type=int, help="end after so many")
    command.add_argument("--when-full", choices=POLICIES, default=POLICIES[0])
    command.add_argument("--json", action="store_true")
    _finish(command, subscribe)
    command = commands.add_parser("broadcast", help="tell every member of a cluster")
    command.add_argument("target")
    command.add_argument("payload", nargs="?", default="")
    _finish(command, broadcast)
    command = commands.add_parser("serve", help="be a member that echoes, to try things out")
    command.add_argument("--echo", action="store_true", required=True)
    command.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    _finish(command, serve)


def _finish(command: argparse.ArgumentParser, run: object) -> None:
    add_joining(command)
    command.set_defaults(run=run)


async def request(args: argparse.Namespace) -> int:
    async with joined(args) as node:
        data = payload(args.payload)
        if not args.gather:
            reply = await node.request(args.target, data, timeout=args.timeout)
            if args.json:
                print(json.dumps({"reply": readable(reply)}))
            else:
                out(reply)
            return 0
        with trio.move_on_after(node.config.settle_s):
            await node.wait_members(args.target.partition("/")[0])
        failed = answered = 0
        async for member, answer in node.gather(args.target, data, timeout=args.timeout):
            good = isinstance(answer, bytes)
            answered, failed = answered + good, failed + (not good)
            text = readable(answer) if isinstance(answer, bytes) else str(answer)
            if args.json:
                row = {"node": member.node.hex(), "reply" if good else "error": text}
                print(json.dumps(row), flush=True)
            else:
                print(f"{member.node.hex()[:8]}  {text}", flush=True)
        words(f"{answered} answered, {failed} failed")
        return 0 if answered and not failed else 1


async def publish(args: argparse.Namespace) -> int:
    async with joined(args) as node:
        await trio.sleep(args.wait)
        count = 0
        if args.lines:
            while line := await trio.to_thread.run_sync(sys.stdin.buffer.readline):
                await node.publish(args.topic, line.rstrip(b"\n"))
                count += 1
        else:
            await node.publish(args.topic, payload(args.payload).rstrip(b"\n"))
            count = 1
        await trio.lowlevel.checkpoint()
        nobody = node.statistics().publishing.nobody
        words(f"{count} published, {nobody} of them to nobody")
        return 0 if nobody < count or not count else 1


async def subscribe(args: argparse.Namespace) -> int:
    async with joined(args) as node, node.subscribe(args.pattern, when_full=args.when_full) as sub:
        words(f"subscribed to {args.pattern}")
        seen = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_told, nursery.cancel_scope)
            async for message in sub:
                if message.lost:
                    words(f"{message.lost} messages of {message.topic} were lost here")
                if args.json:
                    row = {
                        "topic": message.topic, "payload": readable(message.payload),
                        "sender": message.sender.hex(), "sequence": message.sequence,
                        "lost": message.lost, "headers": dict(message.headers),
                    }  # fmt: skip
                    print(json.dumps(row, default=str), flush=True)
                else:
                    out(message.topic.encode() + b" " + message.payload)
                seen += 1
                if args.count is not None and seen >= args.count:
                    nursery.cancel_scope.cancel()
                    break
    return 0


async def broadcast(args: argparse.Namespace) -> int:
    async with joined(args) as node:
        with trio.move_on_after(node.config.settle_s):
            await node.wait_members(args.target.partition("/")[0])
        told = await node.broadcast(args.target, payload(args.payload))
        words(f"{told} members told")
        return 0 if told else 1


async def serve(args: argparse.Namespace) -> int:
    service = Service(args.cluster)

    @service.request
    async def echo(request: Request) -> bytes:
        await trio.sleep(args.delay)
        return request.payload

    async with joined(args, service) as node, trio.open_nursery() as nursery:
        words(f"member of {args.cluster} at {' '.join(node.endpoints)}")
        await _until_told(nursery.cancel_scope)
    return 0


async def _until_told(scope: trio.CancelScope) -> None:
    """SIGTERM leaves the mesh properly: finish, say goodbye, exit status 0."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
