"""nng's wire ("SP over TCP") without nng on either side: eight bytes from both, then length and payload."""

from __future__ import annotations

from .raw_pipes import RawPipes, expect
from .raw_socket import Stream

PUSH, PULL = 80, 81
LENGTH_BYTES = 8


class NngRaw(RawPipes):
    name = "nng-raw"
    client = "PUSH to PULL, SP over a socket on both sides, up to 500 in one write"

    def head(self, size_bytes: int) -> bytes:
        return size_bytes.to_bytes(LENGTH_BYTES, "big")

    def greet(self, stream: Stream, *, takes: bool) -> None:
        own, other = (PULL, PUSH) if takes else (PUSH, PULL)
        stream.write(greeting(own))
        expect(stream, greeting(other))


def greeting(protocol: int) -> bytes:
    return b"\x00SP\x00" + protocol.to_bytes(2, "big") + b"\x00\x00"


SYSTEMS = (NngRaw(),)
