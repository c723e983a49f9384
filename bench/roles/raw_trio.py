"""A libzmq socket under trio: the least that a program such as the mesh has to do for a message."""

from __future__ import annotations

import trio
import zmq


async def received(socket: zmq.Socket[bytes]) -> list[bytes]:
    """Return the next message's parts. Receives before it waits, as libzmq's descriptor is edge-triggered."""
    while True:
        try:
            return socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            await trio.lowlevel.wait_readable(socket.fileno())
