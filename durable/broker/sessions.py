"""Tunnels of clients: the hello says what a tunnel is for, then its session runs in the handler's task."""

from __future__ import annotations

import logging
from contextlib import suppress
from secrets import token_bytes

from mesh.errors import TooLarge, TunnelBroken
from mesh.tunnel import Tunnel

from ..errors import BrokerLost, DurableError, Malformed
from ..protocol.calls import (
    CONSUME,
    CONTROL,
    PUBLISH,
    READ,
    Answer,
    Hello,
    decode_hello,
    encode_answer,
)
from ..protocol.parts import encode_ended
from ..tunnels import single_error
from .auto_deletion import final_write_scope
from .consuming import serve_consumer
from .control import Control
from .control_session import ControlSession
from .peer import Peer
from .publishing import serve_publisher
from .reading import serve_reader
from .running_vhost import RunningVhost
from .vhosts import Vhosts

logger = logging.getLogger("durable")
WARNED_MAX = 1000
"""Most clusters that are warned about, once each."""
HANDLERS = {PUBLISH: serve_publisher, CONSUME: serve_consumer, READ: serve_reader}
"""Handlers of all tunnels but the control tunnel of a connection."""
HELLO_S = 15.0
"""Seconds until a client's hello has to come. A client that takes longer has lost its link: see `resume_s` of
a node."""


class Sessions:
    """The sessions of all connections of one broker."""

    def __init__(self, cluster: str, vhosts: Vhosts) -> None:
        self._cluster, self._vhosts = cluster, vhosts
        self._peers: dict[bytes, Peer] = {}
        self.control_sessions: set[ControlSession] = set()
        self._tunnels: dict[RunningVhost, set[Tunnel]] = {}
        self._warned: set[str] = set()
        """Clusters for which a Malformed session has been logged as a warning; further ones are logged at the
        usual level."""

    async def serve(self, tunnel: Tunnel) -> None:
        """Serve one tunnel to its end. Errors are told to the client, not raised."""
        tunnel.lasts()
        try:
            with tunnel.within(HELLO_S) as scope:
                part = await anext(tunnel)
            if scope.cancelled_caught:
                raise Malformed(f"no hello within {HELLO_S:g} s")
            hello = decode_hello(part).stripped()
            running = self._vhosts.get(hello.vhost, tunnel.caller)
            tunnels = self._tunnels.setdefault(running, set())
            tunnels.add(tunnel)
            try:
                await self._serve_vhost(tunnel, hello, running)
            finally:
                tunnels.discard(tunnel)
        except (StopAsyncIteration, TunnelBroken):
            pass
        except DurableError as error:
            await self._report_end(tunnel, error)
        except TooLarge as error:
            takes = f"the tunnel takes parts of {error.limit_bytes} bytes, but {error.size_bytes} are needed"
            await self._report_end(tunnel, Malformed(takes))
        except BaseExceptionGroup as group:
            await self._report_end(tunnel, single_error(group))

    async def _serve_vhost(self, tunnel: Tunnel, hello: Hello, running: RunningVhost) -> None:
        if hello.kind == CONTROL:
            await self._serve_connection(tunnel, running)
            return
        peer = self._peers.get(hello.field("session", bytes))
        if peer is None or peer.cluster != tunnel.caller:
            raise BrokerLost(self._cluster, "its session has ended")
        if peer.permissions is not running.vhost.registry.permissions:
            raise Malformed("a session of another vhost")
        serve = HANDLERS.get(hello.kind)
        if serve is None:
            raise Malformed(f"a hello of unknown kind {hello.kind!r}")
        with peer.hide_suggestions():
            await serve(tunnel, hello, running, peer)

    async def delete_vhost(self, name: str) -> None:
        """Delete a vhost and end all of its connections. Raises what `Vhosts.delete` raises, and StoreFailed
        if the vhost still exists."""
        running, wait_removed = self._vhosts.delete(name)
        for tunnel in list(self._tunnels.pop(running, ())):
            tunnel.abort("the vhost was deleted")
        await wait_removed()

    async def _report_end(self, tunnel: Tunnel, error: DurableError) -> None:
        level, cluster = logging.INFO, tunnel.caller
        first = cluster not in self._warned and len(self._warned) < WARNED_MAX
        # A client that sends such may do so all the time.
        if isinstance(error, Malformed) and first:
            self._warned.add(cluster)
            level = logging.WARNING
        logger.log(level, "a session of cluster %s ended: %s", cluster, error)
        with suppress(TunnelBroken, TooLarge):
            await tunnel.send(encode_ended(error))

    async def _serve_connection(self, tunnel: Tunnel, running: RunningVhost) -> None:
        """Serve the calls of a connection, and give it the session id that its other tunnels name."""
        session = token_bytes(16)
        peer = Peer(tunnel.caller, running.vhost.registry.permissions, session)
        control = Control(running, peer, self._vhosts, self.delete_vhost)
        control_session = ControlSession(tunnel, control, peer, self.control_sessions)
        self._peers[session] = peer
        self.control_sessions.add(control_session)
        try:
            await tunnel.send(encode_answer(Answer(0, {"session": session})))
            await control_session.serve()
        finally:
            del self._peers[session]
            self.control_sessions.remove(control_session)
            with final_write_scope():
                await running.delete_exclusive(peer.exclusive_lanes)
