"""A socket of libzmq under trio: the least that a program of the mesh's kind does for a message."""

from __future__ import annotations

import trio
import zmq


async def received(socket: zmq.Socket[bytes]) -> list[bytes]:
    """The next message's parts. Takes first what is there: libzmq's descriptor tells of news only."""
    while True:
        try:
            return socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            await trio.lowlevel.wait_readable(socket.fileno())
