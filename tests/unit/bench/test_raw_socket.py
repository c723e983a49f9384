"""The socket of the floors, against a server that is a thread: it never stands still, and never raises."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench.loops.blocking_loop import BlockingLoop
from bench.systems.raw_frames import FixedFrames
from bench.systems.raw_socket import Stream, dial

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
