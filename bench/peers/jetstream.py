"""NATS JetStream 2.9 and nats-py: publishes with their acks outstanding, a pull consumer that acks all up to one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.systems.system import not_installed

from .peer import ACK_COUNT, HOST, OUTSTANDING, SILENCE_S_MAX, Command

PROGRAM = "nats-server"
ACK_PENDING_MAX = 20_000

Run = Callable[[Awaitable[Any]], Any]


class JetStream:
    name = "NATS JetStream file, nats-py"
    promise = "that it is in the page cache, which is synced every two minutes"

    def missing(self) -> str | None:
        return not_installed(program=PROGRAM, package="nats-server", modules=("nats",))

    def commands(self, directory: Path, ports: Sequence[int]) -> list[Command]:
        words = ["-a", HOST, "-p", str(ports[0]), "-js", "-sd", str(directory)]
        return [Command([PROGRAM, *words])]

    @contextmanager
    def publisher(self, port: int, queue: str) -> Iterator[Publisher]:
        with connected(port) as (run, stream):
            run(stream.add_stream(name=queue, subjects=[queue], storage="file"))
            yield Publisher(run, stream, queue)

    @contextmanager
    def consumer(self, port: int, queue: str) -> Iterator[Consumer]:
        api = import_module("nats.js.api")
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.ALL, ack_wait=300, max_ack_pending=ACK_PENDING_MAX
        )
        with connected(port) as (run, stream):
            pulling = run(stream.pull_subscribe(queue, durable="bench", config=config))
            yield Consumer(run, pulling)


@contextmanager
def connected(port: int) -> Iterator[tuple[Run, Any]]:
    """A loop that runs only while somebody waits, and a JetStream context."""
    nats = import_module("nats")
    with asyncio.Runner() as runner:
        run: Run = runner.run  # type: ignore[assignment]  # Coroutines are all that is run here.
        connection = run(nats.connect(f"nats://{HOST}:{port}"))
        yield run, connection.jetstream(publish_async_max_pending=OUTSTANDING)
        run(connection.close())


class Publisher:
    def __init__(self, run: Run, stream: Any, subject: str) -> None:
        self._run, self._stream, self._subject = run, stream, subject

    def publish(self, payloads: Sequence[bytes]) -> None:
        self._run(self._publish(payloads))

    async def _publish(self, payloads: Sequence[bytes]) -> None:
        send, subject = self._stream.publish_async, self._subject
        answers = [await send(subject, payload, wait_stall=SILENCE_S_MAX) for payload in payloads]
        for answer in answers:
            await answer


class Consumer:
    def __init__(self, run: Run, pulling: Any) -> None:
        self._run, self._pulling = run, pulling

    def consume(self, count: int, take: Callable[[list[bytes]], None]) -> None:
        self._run(self._consume(count, take))

    async def _consume(self, count: int, take: Callable[[list[bytes]], None]) -> None:
        """The last ack is answered; the others need not be."""
        while count > 0:
            try:
                messages = await self._pulling.fetch(min(ACK_COUNT, count), timeout=SILENCE_S_MAX)
            except TimeoutError:
                return
            take([message.data for message in messages])
            count -= len(messages)
            if count > 0:
                await messages[-1].ack()
            else:
                await messages[-1].ack_sync(timeout=SILENCE_S_MAX)
