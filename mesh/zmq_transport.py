"""A transport over ZeroMQ: every connection has CURVE, ZAP admits clients, dials are never reconnected.

    inbound   one ROUTER, CURVE server; bound once per key: the door, each cluster, each generation
    control   one ROUTER that makes all dials of control lanes   } RECONNECT_IVL -1: a dial is one
    data      one ROUTER that makes all dials of data lanes      } connection and ends with it

libzmq's own high-water marks are off, because a ROUTER reports one full peer as writable for all; links have
windows of their own.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from socket import socket as Socket

import trio
import zmq
from trio.lowlevel import enable_ki_protection

from discovery.endpoint import format_endpoint, is_address, parse_endpoint
from discovery.errors import BadEndpoint
from discovery.resolver import Resolver
from security.announcement import Endpoint
from security.keyring import Keyring

from .accepted import Accepted, hide_ids
from .admission import Admission
from .binding import bind_to
from .config import MeshConfig
from .dials import Dialled, Dials, secret_of
from .endings import BROKEN_OFF, CLOSE_PAUSES_S, SERVERS_BYTES, Endings, hung_up_peer
from .listening import Bind, binds_of
from .nursery import open_nursery
from .probing import probe
from .protocol.dialling import TIMEOUT_FACTOR_MAX
from .protocol.frame import CONTROL, DATA, largest_frame
from .protocol.instructions import Dial
from .protocol.lane import Conn
from .transport import Receiver
from .yielding import yielder_of_this_run
from .zmq_socket import NOBLOCK, SNDMORE, ZmqSocket, content, parse_monitor_event

FRAMES_PER_TURN, BYTES_PER_TURN = 64, 2 << 20
OVERSIZE_FACTOR = 4
"""libzmq's limit is so many times the largest frame. The core reports a frame up to it as too large; for a larger
one libzmq just ends the connection (`endings` finds out)."""
LINGER_MS = 500
logger = logging.getLogger("mesh")
HANG_UP_MS = 50
"""Time to send what was queued before a hang-up. While libzmq lingers it reads nothing, and if the other end closes in
that time, libzmq's next heartbeat ends the process: so keep it short."""
HEARTBEAT_MS = 1000
RESOLVERS_MAX = 8
"""Threads for look-ups of one node: several, because some may still wait for answers that were given up."""
DESCRIPTORS_CHECK_S = 10.0
BACKLOG = 4096
"""Connections that the kernel queues until libzmq accepts them (the kernel may allow fewer). When a thousand nodes dial
at once, those without room retry after one second, two, four ... libzmq's default is 100."""

FAILED_AUTH = int(zmq.Event.HANDSHAKE_FAILED_AUTH)
FAILED_NO_DETAIL = int(zmq.Event.HANDSHAKE_FAILED_NO_DETAIL)
DENIED = {FAILED_AUTH, FAILED_NO_DETAIL}
"""Without HANDSHAKE_FAILED_PROTOCOL: libzmq also reports it for a message that does not decrypt. If that event is
monitored, libzmq loses the reason (errno) and keeps the connection, and a reset then ends the process
(4.3.5, stream_engine_base.cpp)."""
CLOSED, DISCONNECTED = int(zmq.Event.CLOSED), int(zmq.Event.DISCONNECTED)
ENDED = {CLOSED, DISCONNECTED}
BEGUN = {int(zmq.Event.ACCEPTED), int(zmq.Event.CONNECTED)}


@dataclass(slots=True, eq=False)
class Resolving:
    """A dial whose name is being looked up, and the frames to send there afterwards."""

    frames: list[bytes] = field(default_factory=list)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class ZmqTransport:
    """The sockets of one node, in a context of their own, since ZAP's address is per context."""

    def __init__(self, config: MeshConfig, keyring: Keyring) -> None:
        self._config, self._keyring = config, keyring
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._dials = Dials()
        self._accepted = Accepted()
        self._keys_by_cluster = not keyring.door()
        """Whether who has the key of one cluster has not those of all."""
        self._readable_sockets: dict[ZmqSocket, None] = {}
        self._endings = Endings(int(config.suspect_s * 500))
        self._resolving: dict[Conn, Resolving] = {}
        self._resolver = Resolver(RESOLVERS_MAX)
        self._sent_bytes: dict[ZmqSocket, int] = {}  # Bytes sent since the last `check_arrivals`.
        self._yielder = yielder_of_this_run()
        self._message_bytes_max = OVERSIZE_FACTOR * largest_frame(config.frame_bytes_max)
        self._handshake_ms_max = int(config.handshake_s * TIMEOUT_FACTOR_MAX * 1000)
        self.binds: Sequence[Bind] = ()
        self._sockets: list[ZmqSocket] = []

    # Life

    @enable_ki_protection
    async def run(
        self, receiver: Receiver,
        *, task_status: trio.TaskStatus[Sequence[Endpoint]] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        """Bind, report the endpoints to announce, then receive until cancelled.

        Raises:
            CannotBind: an address cannot be bound.
        """
        # glibc returns the heap's top to the kernel after each big frame and faults it in again, which
        # takes 120 us per 256 KiB, until freeing one large block has raised its thresholds.
        block = bytes(8 << 20)
        del block
        self._receiver = receiver
        hide_ids()
        sockets = self._sockets
        try:
            async with open_nursery() as nursery:
                self._nursery = nursery
                zap = ZmqSocket(self._context.socket(zmq.ROUTER))
                sockets.append(zap)
                self._inbound = self._router()
                admission = Admission(
                    zap, self._keyring, catch_up=self._catch_up,
                    on_question=partial(self._endings.asked, self._inbound),
                    refused=partial(self._receiver.refused, "a connection"),
                )  # fmt: skip
                nursery.start_soon(zap.each, admission.answer)
                self._outbound = {CONTROL: self._router(), DATA: self._router()}
                for socket in self._outbound.values():
                    socket.raw.setsockopt(zmq.RECONNECT_IVL, -1)
                    socket.raw.setsockopt(zmq.CONNECT_TIMEOUT, self._handshake_ms_max)
                    # The core limits the time of a dial. If libzmq did, the dial would look denied.
                    socket.raw.setsockopt(zmq.HANDSHAKE_IVL, 0)
                endpoints = self._bind()
                for socket in (self._inbound, *self._outbound.values()):
                    monitor = socket.monitor(sum(DENIED | ENDED | BEGUN))
                    sockets.append(monitor)
                    caught_up = partial(self._endings.caught_up, socket)
                    nursery.start_soon(monitor.each, partial(self._on_event, socket), caught_up)
                    nursery.start_soon(self._read, socket)
                nursery.start_soon(self._check_descriptors)
                task_status.started(endpoints)
        finally:
            self._endings.close()
            for socket in sockets:  # Maybe only some of them have been made.
                socket.raw.disable_monitor()
            for socket in sockets:
                socket.close(LINGER_MS)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._context.term)

    def _router(self) -> ZmqSocket:
        raw = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.LINGER, HANG_UP_MS),
            (zmq.MAXMSGSIZE, self._message_bytes_max),
            (zmq.HANDSHAKE_IVL, self._handshake_ms_max),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, int(self._config.suspect_s * 1000)),
        ):
            raw.setsockopt(option, value)
        raw.setsockopt(zmq.ZAP_DOMAIN, b"mesh")
        socket = ZmqSocket(raw)
        self._sockets.append(socket)
        return socket

    def _bind(self) -> list[Endpoint]:
        raw = self._inbound.raw
        raw.setsockopt(zmq.CURVE_SERVER, 1)
        raw.setsockopt(zmq.BACKLOG, BACKLOG)
        self.binds = binds_of(self._config, self._keyring)
        endpoints: list[Endpoint] = []
        for bind in self.binds:
            raw.setsockopt(zmq.CURVE_SECRETKEY, secret_of(bind.keys))
            bind_to(raw, bind.uri)
            bound = raw.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
            endpoints += [Endpoint(uri, bind.keys.key_id) for uri in bind.announced_uris(bound)]
        return endpoints

    def _catch_up(self) -> bool:
        """Handle answers to our dials that have arrived; return whether there were any."""
        socket = self._outbound[CONTROL]
        if not socket.readable():
            return False
        if self._receive_some(socket):
            self._sent_bytes.setdefault(socket, 0)
            self._nursery.start_soon(self._receive_arrived)
        self._receiver.flush()
        return True

    async def _check_descriptors(self) -> None:
        """Log it when there are none left. libzmq then accepts nobody, and tries again all the time, each time with an
        event: too many to monitor."""
        was_short = False
        while True:
            try:
                os.close(os.dup(self._inbound.fd))
                was_short = False
            except OSError as error:
                if not was_short:
                    logger.warning("cannot accept connections: %s (`ulimit -n`)", error.strerror)
                was_short = True
            await trio.sleep(DESCRIPTORS_CHECK_S)

    # Events

    def _on_event(self, socket: ZmqSocket, parts: list[bytes]) -> None:
        """Handle a monitor event. Its value is a descriptor, or for failed handshakes the reason."""
        kind, value, endpoint = parse_monitor_event(parts)
        if socket is self._inbound:
            self._on_inbound(kind, value)
            return
        dialled = self._dials.by_endpoint(socket, endpoint)
        if dialled is not None and not dialled.has_ended:
            self._on_dialled(dialled, kind, value)

    def _on_dialled(self, dialled: Dialled, kind: int, value: int) -> None:
        incomplete = self._endings.handshake_incomplete(dialled.rid, SERVERS_BYTES)
        if kind in DENIED:
            dialled.denied = kind == FAILED_AUTH or incomplete
        elif kind in BEGUN:
            dialled.descriptor = value
            self._endings.begun(dialled.rid, value, dialled.socket)
        elif kind == CLOSED:  # Nothing accepted it; libzmq keeps 40 KB for it until we disconnect.
            self.hang_up(dialled.conn)
            self._nursery.start_soon(self._receive_arrived)
            self._dialled_lost(dialled)
        elif value != dialled.descriptor:
            # The event is about an earlier dial to this address, on which we hung up.
            dialled.denied = None
        else:
            if incomplete:
                dialled.denied = True
            dialled.has_ended = True
            kept = self._endings.ended(dialled.rid) if dialled.denied is None else None
            self._nursery.start_soon(self._end_dialled, dialled, kept)

    def _on_inbound(self, kind: int, value: int) -> None:
        if kind in BEGUN:
            self._endings.begun(value, value, self._inbound)
            self._accepted.begun(value)
        elif kind == FAILED_NO_DETAIL:  # FAILED_AUTH is known from ZAP, and is not the end.
            self._endings.failed(by_them=value != errno.EAGAIN)
        elif kind == DISCONNECTED:
            what = self._endings.unadmitted_kind(value, trio.current_time())
            conns = self._accepted.by_descriptor(value)
            kept = self._endings.ended(value) if what is None else None
            if kept is not None:
                self._nursery.start_soon(self._end_inbound, kept, value, conns)
                return
            if what:
                self._receiver.refused(what, quiet=what == BROKEN_OFF)
            self._inbound_lost(conns)

    async def _end_dialled(self, dialled: Dialled, kept: Socket | None) -> None:
        """Report an ended dial as lost once libzmq has let go of it: a new dial made before that would end, too."""
        if kept is not None and dialled.descriptor is not None:
            await self._report_cut_off(kept, dialled.descriptor, (dialled.conn,))
        for pause_s in CLOSE_PAUSES_S:
            await trio.sleep(pause_s)
            released = dialled.is_released()
            self._sent_bytes.setdefault(dialled.socket, 0)
            await self._receive_arrived()
            if released:
                break
        self._dialled_lost(dialled)

    async def _end_inbound(self, kept: Socket, descriptor: int, conns: Sequence[Conn]) -> None:
        await self._report_cut_off(kept, descriptor, conns)
        self._inbound_lost(conns)

    async def _report_cut_off(self, kept: Socket, descriptor: int, conns: Sequence[Conn]) -> None:
        """Report it if libzmq hung up on one of these connections because of what was sent."""
        address = await hung_up_peer(kept, descriptor)
        if address is not None:
            what = (
                f"a message that has more than {self._message_bytes_max} bytes, is malformed, or took longer "
                f"than suspect_s, {self._config.suspect_s:g} s"
            )
            self._receiver.cut_off(conns, what, address)

    def _dialled_lost(self, dialled: Dialled) -> None:
        self._forget(dialled)
        self._report_lost(dialled.conn, denied=bool(dialled.denied))

    def _report_lost(self, conn: int, *, denied: bool = False) -> None:
        self._receiver.lost(conn, denied=denied)
        self._receiver.flush()

    def _inbound_lost(self, conns: Sequence[Conn]) -> None:
        self._receiver.inbound_lost(conns)
        self._receiver.flush()

    @enable_ki_protection
    async def _read(self, socket: ZmqSocket) -> None:
        while not socket.closed:
            while not socket.closed and self._receive_some(socket):
                self._receiver.flush()
                await trio.lowlevel.checkpoint()
            self._receiver.flush()
            # EVENTS has just shown that there is nothing, and `check_arrivals` checks after every other use.
            await trio.lowlevel.wait_readable(socket.fd)

    def _receive_some(self, socket: ZmqSocket) -> bool:
        """Receive within a budget, so that no peer can occupy the loop. Return True if there is more."""
        recv, received = socket.raw.recv, self._receiver.received
        inbound, cluster_of = socket is self._inbound, self._accepted.cluster_of
        keys_by_cluster, is_from = self._keys_by_cluster, self._accepted.is_from
        received_bytes = 0
        for _ in range(FRAMES_PER_TURN):
            try:
                rid = recv(NOBLOCK)
            except zmq.Again:  # Spurious wake-ups are rare, so EVENTS is not checked first.
                return False
            frame = recv(NOBLOCK, copy=False)
            data = content(frame) if not frame.more else socket.skip_rest()
            if inbound:
                cluster = cluster_of.get(rid)
                if cluster is None:
                    cluster = self._register(rid, frame)
                elif keys_by_cluster and not is_from(frame, cluster):
                    self._refuse_taken_over(rid)
                    cluster = None
                if cluster is not None:
                    received(rid, cluster, data)
            else:
                dialled = self._dials.by_rid(rid)
                if dialled is not None:
                    received(dialled.conn, None, data)
            received_bytes += len(data)
            if not socket.readable():
                return False
            if received_bytes > BYTES_PER_TURN:
                break
        return True

    def _register(self, rid: bytes, frame: zmq.Frame) -> str | None:
        """Register a connection by its first frame. Return its cluster, or None if it is ignored."""
        if self._accepted.is_generated(rid):
            return self._accepted.register(rid, frame)
        if self._accepted.refuse(frame):
            self._receiver.refused("a connection that asked for a routing id")
        return None

    def _refuse_taken_over(self, rid: bytes) -> None:
        """Another cluster's connection asked for the routing id of one that has ended, and gets no answer."""
        self._accepted.ignore(rid)
        self._receiver.refused("a connection under the routing id of another cluster's")
        self._receiver.lost(rid)

    def check_arrivals(self) -> bool:
        """Return, after sending, whether frames have arrived whose signal the sends may have consumed."""
        sent_bytes, self._sent_bytes = self._sent_bytes, {}
        self._yielder.sent(sum(sent_bytes.values()))
        for socket in sent_bytes:
            if socket.readable():
                self._readable_sockets[socket] = None
        return bool(self._readable_sockets)

    def receive(self) -> bool:
        """Receive what `check_arrivals` found. Return True if there is more."""
        readable_sockets, self._readable_sockets = self._readable_sockets, {}
        for socket in readable_sockets:
            if self._receive_some(socket):
                self._readable_sockets[socket] = None
        return bool(self._readable_sockets)

    # Doing

    def dial(self, dial: Dial) -> None:
        try:
            host, port = parse_endpoint(dial.endpoint)
        except BadEndpoint:  # A peer may announce an invalid address.
            self._fail_soon(dial)
            return
        if is_address(host):
            self._connect(dial, dial.endpoint)
        else:
            resolving = self._resolving[dial.conn] = Resolving()
            self._nursery.start_soon(self._resolve, resolving, dial, host, port)

    @enable_ki_protection
    async def _resolve(self, resolving: Resolving, dial: Dial, host: str, port: int) -> None:
        """Look a name up and connect. libzmq would resolve it in its I/O thread and stall all links."""
        found: str | None = None
        with resolving.scope:
            found = await self._resolver.address_to_dial(host)
        if self._resolving.pop(dial.conn, None) is None:
            return  # We have hung up meanwhile.
        if found is None:
            self._report_lost(dial.conn)
            return
        self._connect(dial, format_endpoint(found, port))
        for frame in resolving.frames:
            self.send(dial.conn, frame)
        await self._receive_arrived()

    @enable_ki_protection
    async def _receive_arrived(self) -> None:
        """Receive what has arrived, after a use of sockets outside of instructions: it may have consumed the signal."""
        self.check_arrivals()
        while self.receive():
            self._receiver.flush()
            await trio.lowlevel.checkpoint()
        self._receiver.flush()

    def _connect(self, dial: Dial, endpoint: str) -> None:
        socket = self._outbound[dial.lane]
        self._sent_bytes.setdefault(socket, 0)
        if not self._dials.connect(socket, dial, endpoint):
            self._fail_soon(dial)

    def _fail_soon(self, dial: Dial) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(self._report_lost, dial.conn)

    def _forget(self, dialled: Dialled) -> None:
        self._dials.forget(dialled)
        self._endings.forget(dialled.rid)

    def hang_up(self, conn: Conn) -> None:
        if isinstance(conn, bytes):
            self._accepted.ignore(conn)
            return
        resolving = self._resolving.pop(conn, None)
        if resolving is not None:
            resolving.scope.cancel()
        dialled = self._dials.by_conn(conn)
        if dialled is not None and not dialled.has_ended:
            self._forget(dialled)
            self._sent_bytes.setdefault(dialled.socket, 0)
            with suppress(zmq.ZMQError):  # It may have ended by itself.
                dialled.socket.raw.disconnect(dialled.endpoint)

    def send(self, conn: Conn, frame: bytes) -> bool:
        """Queue a frame without blocking. Return False if the connection does not exist any more."""
        if isinstance(conn, bytes):
            socket, rid = self._inbound, conn
        else:
            dialled = self._dials.by_conn(conn)
            if dialled is None:
                resolving = self._resolving.get(conn)
                if resolving is not None:
                    resolving.frames.append(frame)
                return True  # If unknown: we have hung up, or its loss is about to be reported.
            socket, rid = dialled.socket, dialled.rid
        raw = socket.raw
        self._sent_bytes[socket] = self._sent_bytes.get(socket, 0) + len(frame)
        try:
            raw.send(rid, SNDMORE | NOBLOCK)
            raw.send(frame, NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            # The loss of a dial is reported by the monitor, with the reason; its address is occupied until then.
            return isinstance(conn, int)
        return True

    def probe(self, endpoint: str, node: bytes) -> None:
        self._nursery.start_soon(self._probe, endpoint, node)

    async def _probe(self, endpoint: str, node: bytes) -> None:
        found = await probe(self._resolver, endpoint)
        self._receiver.probed(node, endpoint, found)
        self._receiver.flush()
