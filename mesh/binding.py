"""Binds a ZeroMQ socket, with a helpful error; and checks whether addresses can be bound."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import zmq

from .errors import CannotBind
from .listening import Bind


def bind_to(socket: zmq.Socket[bytes], uri: str) -> None:
    """Bind `socket` to `uri`. Raises CannotBind."""
    socket.setsockopt(zmq.IPV6, int("[" in uri))
    try:
        socket.bind(uri)
    except zmq.ZMQError as error:
        why = zmq.strerror(error.errno or 0)  # `error.strerror` would repeat the address.
        if error.errno == errno.EADDRINUSE:
            why += "; use port 0 for any free port"
        raise CannotBind(uri, why) from None


def check_free(binds: Sequence[Bind]) -> None:
    """Bind all of them and release them, for a caller that creates something before it joins. Raises CannotBind."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # On exit, waits until libzmq has released them.
    with made as context, context.socket(zmq.ROUTER) as socket:
        for bind in binds:
            bind_to(socket, bind.uri)
