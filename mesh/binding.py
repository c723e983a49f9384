"""Binding a ZeroMQ socket, with an error that says what else to listen on; and asking whether one could."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import zmq

from .errors import CannotBind
from .listening import Bind


def bind_to(socket: zmq.Socket[bytes], uri: str) -> None:
    """Raises CannotBind."""
    socket.setsockopt(zmq.IPV6, int("[" in uri))
    try:
        socket.bind(uri)
    except zmq.ZMQError as error:
        why = zmq.strerror(error.errno or 0)  # `error.strerror` has the address again.
        if error.errno == errno.EADDRINUSE:
            why += "; port 0 is any that is free"
        raise CannotBind(uri, why) from None


def check_free(binds: Sequence[Bind]) -> None:
    """Bind them all and let go, for whoever has something to make before it joins. Raises CannotBind."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with made as context, context.socket(zmq.ROUTER) as socket:  # Until libzmq has let go of them.
        for bind in binds:
            bind_to(socket, bind.uri)
