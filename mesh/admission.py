"""Answers libzmq's ZAP questions (RFC 27): which cluster does a client's key belong to?

The answer's `User-Id` is the cluster; libzmq attaches it to every frame of that client.
"""

from __future__ import annotations

from collections.abc import Callable

from security.keyring import Keyring

from .zmq_socket import NOBLOCK, ZmqSocket

ADDRESS = "inproc://zeromq.zap.01"


class Admission:
    """Answers the questions of one zmq context, whose ZAP socket is `zap`."""

    def __init__(
        self, zap: ZmqSocket, keyring: Keyring, *, catch_up: Callable[[], bool],
        on_question: Callable[[], object], refused: Callable[[str], object],
    ) -> None:  # fmt: skip
        """
        Args:
            catch_up: handles frames that have arrived; returns whether there were any.
            on_question: called at each question, before it is answered.
            refused: called with the address of each client that is not admitted.
        """
        self._zap, self._keyring = zap, keyring
        self._catch_up, self._on_question, self._refused = catch_up, on_question, refused
        zap.raw.bind(ADDRESS)

    def answer(self, parts: list[bytes]) -> None:
        if len(parts) < 8:
            return
        self._on_question()
        ident, _, version, request, _, address, _, mechanism, *credentials = parts
        cluster = None
        if mechanism == b"CURVE" and len(credentials) == 1:
            cluster = self._cluster_of(credentials[0])
        if cluster is None:
            self._refused(address.decode("ascii", "replace"))
        status, text = (b"200", b"OK") if cluster is not None else (b"400", b"unknown key")
        name = cluster.encode() if cluster is not None else b""
        self._zap.raw.send_multipart(
            [ident, b"", version, request, status, text, name, b""], NOBLOCK
        )

    def _cluster_of(self, key: bytes) -> str | None:
        cluster = self._keyring.admit(key)
        # A peer dials us right after it has answered our introduction. If our loop is late, its answer, which makes
        # the key known, and this question are both waiting, and may be read in either order.
        if cluster is None and self._catch_up():
            cluster = self._keyring.admit(key)
        return cluster
