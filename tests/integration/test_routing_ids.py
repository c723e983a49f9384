"""Connections that ask for a routing id of their own, on real sockets: what is counted of them."""

from __future__ import annotations

import zmq

from mesh.zmq_transport import ZmqTransport
from security.keys import DOOR
from tests.integration.test_security import Stranger, counted, echo_service, server_endpoint
from tests.nodes import node
from tests.waiting import until


async def test_a_connection_that_asked_for_a_routing_id_is_counted_once() -> None:
    """Found: each of its frames was counted as a connection."""
    async with node(echo_service()) as db:
        uri, server = server_endpoint(db, DOOR)
        transport = db._driver._transport
        assert isinstance(transport, ZmqTransport)
        refuse_it, frames = transport._accepted.refuse, list[bool]()

        def refuse(frame: zmq.Frame) -> bool:
            frames.append(refuse_it(frame))
            return frames[-1]

        transport._accepted.refuse = refuse  # type: ignore[method-assign]
        for connections in (1, 2):
            with Stranger(uri, server, server, routing_id=b"x") as insider:
                for _ in range(5):
                    insider.socket.send(b"garbage")
                await until(lambda: len(frames) == 5 * connections)
            assert counted(db, "asked for a routing id") == connections
            # Its descriptor may be the next one's.
            await until(lambda: not transport._endings._kept)
