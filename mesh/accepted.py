"""The connections that others have opened to a transport, distinguished by routing id.

The first frame of each tells whose key was shown and which descriptor it has; when it ends, libzmq
reports the descriptor only.

libzmq gives out the routing ids, unless the other end asks for one in its handshake. None of ours does. Who holds
any key that is trusted could ask for one
    that is very long                  and is remembered when the connection has ended: so it is refused (`is_generated`)
    of a connection that has ended     and pass for the cluster that had it: so the key is looked at again (`is_from`)
    that libzmq gives out next         and libzmq ends the process: so nobody can tell which one (`hide_ids`)
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from contextlib import suppress

import zmq

from .protocol.latest import Latest

GENERATED_BYTES = 5
IGNORED_MAX = 10_000
KNOWN_MAX = 65_536
"""Connections whose cluster is remembered, including ended ones: 15 MB. A live one that was forgotten is
registered again by its next frame."""
PER_DESCRIPTOR_MAX = 2
"""Connections remembered per descriptor, the last two: frames and events arrive by different sockets, so the descriptor
may already belong to the next connection."""


class Accepted:
    """The accepted connections of one transport."""

    def __init__(self) -> None:
        self.cluster_of: Latest[bytes, str] = Latest(KNOWN_MAX)
        """Cluster whose key each connection showed; without the ignored ones. For an unknown one call `register`."""
        self._rids_by_descriptor: dict[int, deque[bytes]] = {}
        self._ignored: Latest[bytes, None] = Latest(IGNORED_MAX)
        self._refused: set[int] = set()
        """Descriptors of connections that asked for a routing id: no more than a process may have."""

    def register(self, rid: bytes, frame: zmq.Frame) -> str | None:
        """Register a connection by its first frame. Return its cluster, or None if it is ignored."""
        if rid in self._ignored:
            return None
        admitted = frame.get("User-Id")
        descriptor = int(frame.get("__fd"))
        self._rids_by_descriptor.setdefault(descriptor, deque(maxlen=PER_DESCRIPTOR_MAX)).append(
            rid
        )
        cluster = self.cluster_of[rid] = admitted if isinstance(admitted, str) else ""
        return cluster

    def refuse(self, frame: zmq.Frame) -> bool:
        """Return whether this is the first frame of a connection that asked for a routing id. Of the id nothing is kept."""
        descriptor = int(frame.get("__fd"))
        known = descriptor in self._refused
        self._refused.add(descriptor)
        return not known

    def begun(self, descriptor: int) -> None:
        """Note that a new connection has this descriptor."""
        self._refused.discard(descriptor)

    @staticmethod
    def is_generated(rid: bytes) -> bool:
        """Return whether a routing id looks like those that libzmq gives out: a zero and a number of 32 bits."""
        return len(rid) == GENERATED_BYTES and not rid[0]

    @staticmethod
    def is_from(frame: zmq.Frame, cluster: str) -> bool:
        """Return whether a frame was sent under a key of this cluster."""
        return bool(frame.get("User-Id") == cluster)

    def by_descriptor(self, descriptor: int) -> tuple[bytes, ...]:
        """Return the connections that have, or had, this descriptor."""
        return tuple(self._rids_by_descriptor.get(descriptor, ()))

    def ignore(self, rid: bytes) -> None:
        """Ignore further frames of a connection: a ROUTER cannot close a single accepted connection."""
        self.cluster_of.pop(rid, None)
        self._ignored[rid] = None


def hide_ids() -> None:
    """Call before a ROUTER is made, which counts its routing ids from a number by C's `rand`. libzmq does not seed
    that, so every process would count from the same one. A program that uses C's `rand` with a seed of its own has to set
    it again after its node has started."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).srand(ctypes.c_uint(int.from_bytes(os.urandom(4), "little")))
