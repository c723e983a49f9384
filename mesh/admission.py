"""ZAP (RFC 27): libzmq asks whose key it is that a client has shown. `User-Id` becomes the cluster, which every
frame of it carries.
"""

from __future__ import annotations

from collections.abc import Callable

from security.keyring import Keyring

from .zmq_socket import NOBLOCK, ZmqSocket

ADDRESS = "inproc://zeromq.zap.01"


class Admission:
    """Of one context, whose ZAP socket is `zap`."""

    def __init__(
        self, zap: ZmqSocket, keyring: Keyring, *, catch_up: Callable[[], bool],
        asked: Callable[[], object], refused: Callable[[str], object],
    ) -> None:  # fmt: skip
        """
        Args:
            catch_up: takes in what has come before; whether there was anything.
            asked: told each time, before there is an answer.
            refused: told of the address of who is not admitted.
        """
        self._zap, self._keyring = zap, keyring
        self._catch_up, self._asked, self._refused = catch_up, asked, refused
        zap.raw.bind(ADDRESS)

    def asked(self, parts: list[bytes]) -> None:
        if len(parts) < 8:
            return
        self._asked()
        ident, _, version, request, _, address, _, mechanism, *credentials = parts
        cluster = None
        if mechanism == b"CURVE" and len(credentials) == 1:
            cluster = self._whose(credentials[0])
        if cluster is None:
            self._refused(address.decode("ascii", "replace"))
        status, text = (b"200", b"OK") if cluster is not None else (b"400", b"unknown key")
        name = cluster.encode() if cluster is not None else b""
        self._zap.raw.send_multipart(
            [ident, b"", version, request, status, text, name, b""], NOBLOCK
        )

    def _whose(self, key: bytes) -> str | None:
        cluster = self._keyring.admit(key)
        # Who introduces itself is dialled right after the answer: where our loop is late, both are there, in any order.
        if cluster is None and self._catch_up():
            cluster = self._keyring.admit(key)
        return cluster
