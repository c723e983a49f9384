"""Shared by the raw roles: binding to a free loopback port, and CURVE as the mesh has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import zmq

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = "tcp://127.0.0.1:*"


def bind_loopback(socket: zmq.Socket[bytes]) -> str:
    """Bind to a free port and return its endpoint."""
    socket.bind(LOOPBACK)
    return cast("bytes", socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()


def curve_pairs() -> dict[str, str]:
    """Return two new key pairs, as settings for a server and a client."""
    server_public, server_secret = zmq.curve_keypair()
    client_public, client_secret = zmq.curve_keypair()
    return {
        "server_public": server_public.decode(),
        "server_secret": server_secret.decode(),
        "client_public": client_public.decode(),
        "client_secret": client_secret.decode(),
    }


def serve_with_curve(socket: zmq.Socket[bytes], keys: Mapping[str, str] | None) -> None:
    if keys:
        socket.curve_server = True
        socket.curve_publickey = keys["server_public"].encode()
        socket.curve_secretkey = keys["server_secret"].encode()


def dial_with_curve(socket: zmq.Socket[bytes], keys: Mapping[str, str] | None) -> None:
    if keys:
        socket.curve_serverkey = keys["server_public"].encode()
        socket.curve_publickey = keys["client_public"].encode()
        socket.curve_secretkey = keys["client_secret"].encode()
