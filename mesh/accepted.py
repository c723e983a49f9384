"""The connections that others have opened to a transport, told apart by routing id.

The first frame of each tells whose key was shown, and on which descriptor it is; of its end libzmq
tells the descriptor alone.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import zmq

IGNORED_MAX = 10_000
KNOWN_MAX = 65_536
"""Connections of which it is known whose they are, those that have ended among them: 15 MB. One that lives
and was forgotten says so again with its next frame."""
ON_ONE_DESCRIPTOR = 2
"""The last of them: whose it was, and whose it is by now, for frames and events come on different ways."""


class Accepted:
    """Those of one transport."""

    def __init__(self) -> None:
        self.cluster_of: OrderedDict[bytes, str] = OrderedDict()
        """Whose key it showed, of those that are listened to; others see `first`."""
        self._on: dict[int, deque[bytes]] = {}
        self._ignored: OrderedDict[bytes, None] = OrderedDict()

    def first(self, rid: bytes, frame: zmq.Frame) -> str | None:
        """Who it is, as its first frame tells; None: it is not listened to."""
        if rid in self._ignored:
            return None
        admitted = frame.get("User-Id")
        descriptor = int(frame.get("__fd"))
        self._on.setdefault(descriptor, deque(maxlen=ON_ONE_DESCRIPTOR)).append(rid)
        cluster = self.cluster_of[rid] = admitted if isinstance(admitted, str) else ""
        if len(self.cluster_of) > KNOWN_MAX:
            self.cluster_of.popitem(last=False)
        return cluster

    def on(self, descriptor: int) -> tuple[bytes, ...]:
        """Those that were there, or are."""
        return tuple(self._on.get(descriptor, ()))

    def ignore(self, rid: bytes) -> None:
        """What it still says is not heard: a ROUTER cannot close one accepted connection."""
        self.cluster_of.pop(rid, None)
        self._ignored[rid] = None
        if len(self._ignored) > IGNORED_MAX:
            self._ignored.popitem(last=False)
