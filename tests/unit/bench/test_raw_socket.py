"""The socket of the floors, against a server that is a thread: it never stands still, and never raises."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench.loops.blocking_loop import BlockingLoop
from bench.systems import nng_raw, zeromq_raw
from bench.systems.raw_frames import FixedFrames
from bench.systems.raw_pipes import RawPipes
from bench.systems.raw_socket import Stream, dial
from bench.systems.system import Place

HEAD, SIZE_BYTES = b"m", 1023
COUNT = 20_000
"""Frames of 1 KB: 20 MB, far more than both sockets hold."""


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[Stream]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        stream = dial(listening.getsockname()[1])
        try:
            yield stream
        finally:
            stream.close()
            thread.join()


def echo(connection: socket.socket) -> None:
    """Reads nothing while it writes."""
    while data := connection.recv(1 << 16):
        connection.sendall(data)


def wait_until(loop: BlockingLoop, reached: Callable[[], bool]) -> None:
    async def main() -> None:
        for _ in range(1000):
            if reached():
                return
            await loop.until(time.perf_counter_ns() + 10_000_000)

    loop.run(main)


@pytest.mark.slow
def test_it_reads_while_it_writes() -> None:
    """All at once: a client that only wrote would wait for ever for a server that only writes."""
    payloads, loop = list[bytes](), BlockingLoop()
    sent = [number.to_bytes(SIZE_BYTES, "big") for number in range(COUNT)]

    async def received(some: Sequence[bytes]) -> None:
        payloads.extend(some)

    with serving(echo) as stream:
        stream.follow(loop, FixedFrames(HEAD, SIZE_BYTES, 0), received)
        stream.write(b"".join(HEAD + payload for payload in sent))
        wait_until(loop, lambda: len(payloads) == COUNT)
    assert payloads == sent


@pytest.mark.slow
def test_who_answers_from_within_keeps_the_order() -> None:
    """Each payload is sent back until it has gone round twice."""
    payloads, loop = list[bytes](), BlockingLoop()
    sent = [number.to_bytes(SIZE_BYTES, "big") for number in range(COUNT)]

    async def received(some: Sequence[bytes]) -> None:
        before = len(payloads)
        payloads.extend(some)
        again = payloads[before : max(COUNT, before)]
        stream.write(b"".join(HEAD + payload for payload in again))

    with serving(echo) as stream:
        stream.follow(loop, FixedFrames(HEAD, SIZE_BYTES, 0), received)
        stream.write(b"".join(HEAD + payload for payload in sent))
        wait_until(loop, lambda: len(payloads) == 2 * COUNT)
    assert payloads == sent * 2


def test_a_server_that_hangs_up_loses_what_was_to_come() -> None:
    payloads, loop = list[bytes](), BlockingLoop()

    async def received(some: Sequence[bytes]) -> None:
        payloads.extend(some)

    def leave(connection: socket.socket) -> None:
        connection.sendall(HEAD + bytes(SIZE_BYTES) + HEAD)

    with serving(leave) as stream:
        stream.follow(loop, FixedFrames(HEAD, SIZE_BYTES, 0), received)
        wait_until(loop, lambda: stream.ended)
        stream.write(bytes(1 << 20))
    assert payloads == [bytes(SIZE_BYTES)]


def test_an_answer_that_does_not_come_is_an_error() -> None:
    with (
        serving(lambda connection: connection.sendall(b"no")) as stream,
        pytest.raises(ConnectionError, match="hung up after b'no'"),
    ):
        stream.read_exactly(3)


@pytest.mark.parametrize(
    "system", [*nng_raw.SYSTEMS, *zeromq_raw.SYSTEMS], ids=lambda one: one.name
)
def test_who_sends_does_not_wait_for_a_greeting(system: RawPipes) -> None:
    """Found: two programs that dialled each other at once both did, 20 s, and looked at no loop meanwhile."""
    loop, came = BlockingLoop(), list[bytes]()

    async def received(some: Sequence[bytes]) -> None:
        came.extend(some)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    place = Place(ports=[port, port], secret="", size_bytes=SIZE_BYTES, directory="")
    taking, sending = (system.connect(place, loop, first=first) for first in (True, False))

    async def begin() -> None:
        await taking.subscribe("topic", received)
        await sending.send("topic", [bytes(SIZE_BYTES)])

    async def end() -> None:
        for side in (sending, taking):
            await side.close()

    loop.run(begin)
    wait_until(loop, lambda: bool(came))
    loop.run(end)
    assert came == [bytes(SIZE_BYTES)]
