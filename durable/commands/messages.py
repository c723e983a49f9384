"""`mesh-broker publish` and `consume`: queues from a shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from mesh.commands.messages import payload_of, send_payloads
from mesh.commands.options import (
    Commands,
    WrongUsage,
    add_headers,
    add_payloads,
    given_once,
    nonempty_name,
    seconds_between,
)
from mesh.commands.terminal import (
    jsonable,
    payload_fields,
    print_stderr,
    write_stdout_line,
)

from ..client.connection import Connection
from ..client.deliveries import Deliveries
from ..client.delivery import Delivery
from ..definition_checks import check_key
from ..errors import Unroutable
from ..protocol.properties import TTL_S_MAX, Properties, check_properties
from .options import add_broker_options, connected, wrong_usage
from .printing import add_printing, print_messages

PREFETCH_BYTES = 16 << 20


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "publish", help="publish messages and wait until they are stored",
        description="Publish one message, or one per line of stdin, and return when all are on the "
        "broker's disk.\nExit status 1 unless all are. A message that is routed to no queue is an "
        "error.",
    )  # fmt: skip
    command.add_argument(
        "key", help="routing key; without --exchange, the name of a queue or stream"
    )
    add_payloads(command)
    command.add_argument(
        "--exchange", default="", metavar="NAME", help="exchange (default: the default exchange)"
    )
    command.add_argument(
        "--priority",
        type=int,
        choices=range(10),
        default=0,
        metavar="0-9",
        help="priority (default 0)",
    )
    command.add_argument(
        "--ttl", type=partial(seconds_between, wanted=f"0 to {TTL_S_MAX}", most=TTL_S_MAX),
        metavar="SECONDS", help="time to live in the queue (default: as declared for the queue)",
    )  # fmt: skip
    add_headers(command)
    add_broker_options(command)
    command.set_defaults(run=publish)
    command = commands.add_parser(
        "consume", help="consume and print messages of a queue",
        description="Print the payloads of a queue's messages, each with a line end, until SIGTERM or "
        "Ctrl-C.\nEach message is acknowledged after it was printed, unless --peek is given.",
    )  # fmt: skip
    command.add_argument("queue", type=nonempty_name)
    add_printing(command)
    command.add_argument(
        "--peek", action="store_true",
        help="acknowledge nothing: all messages return to the queue unchanged",
    )  # fmt: skip
    add_broker_options(command)
    command.set_defaults(run=consume)


async def publish(args: argparse.Namespace) -> int:
    data, headers = payload_of(args), given_once(args.header) or None
    ttl_us = None if args.ttl is None else int(args.ttl * 1e6)
    properties = Properties(args.exchange, args.priority, ttl_us, mandatory=True)
    with wrong_usage():
        check_properties(properties)
        check_key("message", "key", args.key)
    if not args.exchange and not args.key:
        raise WrongUsage("without --exchange, the key names a queue or stream: want a name, got ''")
    async with connected(args) as broker, suggest_names(broker), broker.publisher() as publisher:
        send = partial(
            publisher.send, args.exchange, args.key, headers=headers, properties=properties
        )
        sent = await send_payloads(
            args, data, send, publisher.flush, lambda sent: f"on disk: {publisher.stored} of {sent}"
        )
        print_stderr(f"on disk: {sent}")
    return 0


@asynccontextmanager
async def suggest_names(broker: Connection) -> AsyncGenerator[None]:
    """Add to Unroutable errors of the block which queue or key was probably meant."""
    try:
        yield
    except Unroutable as error:
        exchange, key = error.exchange, error.key
        if exchange:
            bound = (one for one in await broker.bindings() if one["exchange"] == exchange)
            # This key itself may be bound, to another exchange that routes it nowhere.
            known = [one["key"] for one in bound if one["key"] != key]
        else:
            found = await broker.statistics()
            known = [*found["queues"], *found["streams"]]
        raise Unroutable(exchange, key, known) from None


async def consume(args: argparse.Namespace) -> int:
    # 0 is no limit: --peek settles nothing, so with a limit it would print only the first messages.
    prefetch = args.count or (0 if args.peek else 1000)
    prefetch_bytes = 0 if args.peek else PREFETCH_BYTES

    async def deliveries(broker: Connection) -> Deliveries:
        return broker.consume(
            args.queue, prefetch=prefetch, prefetch_bytes=prefetch_bytes, peek=args.peek
        )

    async def show(_: Deliveries, delivery: Delivery) -> None:
        await write_stdout_line(_shown(delivery, as_json=args.json))
        if not args.peek:
            await delivery.ack()

    return await print_messages(args, deliveries, show)


def _shown(delivery: Delivery, *, as_json: bool) -> bytes:
    if not as_json:
        return delivery.payload
    row = {
        **payload_fields(delivery.payload), "key": delivery.routing_key,
        "exchange": delivery.exchange, "headers": jsonable(delivery.headers),
        "redelivered": delivery.redelivered, "priority": delivery.properties.priority,
        "deaths": jsonable([one._asdict() for one in delivery.deaths]),
    }  # fmt: skip
    return json.dumps(row).encode()
