"""nng's wire protocol ("SP over TCP") without nng on either side: eight bytes from both, then length and payload."""

from __future__ import annotations

from .raw_pipes import RawPipes

PUSH, PULL = 80, 81
LENGTH_BYTES = 8


class NngRaw(RawPipes):
    name = "nng-raw"
    client = "PUSH to PULL, SP over a socket on both sides, up to 500 in one write"

    def head(self, size_bytes: int) -> bytes:
        return size_bytes.to_bytes(LENGTH_BYTES, "big")

    def greeting(self, *, takes: bool) -> bytes:
        return greeting(PULL if takes else PUSH)


def greeting(protocol: int) -> bytes:
    return b"\x00SP\x00" + protocol.to_bytes(2, "big") + b"\x00\x00"


SYSTEMS = (NngRaw(),)
