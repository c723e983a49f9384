"""ZeroMQ's wire protocol (ZMTP 3.0, RFC 23) without libzmq: from both sides 64 bytes and READY, then frames."""

from __future__ import annotations

from .raw_pipes import RawPipes

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
COMMAND, LONG = 0x04, 0x02
"""Flags of a frame; with neither, it is a message of up to SHORT_BYTES_MAX bytes."""
SHORT_BYTES_MAX = 255
LENGTH_BYTES = 8


class ZeroMQRaw(RawPipes):
    name = "zeromq-raw"
    client = "PUSH to PULL, ZMTP 3.0 over a socket on both sides, up to 500 in one write"

    def head(self, size_bytes: int) -> bytes:
        if size_bytes <= SHORT_BYTES_MAX:
            return bytes((0, size_bytes))
        return bytes((LONG,)) + size_bytes.to_bytes(LENGTH_BYTES, "big")

    def greeting(self, *, takes: bool) -> bytes:
        return GREETING + ready("PULL" if takes else "PUSH")


def ready(kind: str) -> bytes:
    """Return the READY command, which names the socket's type."""
    name, value = b"Socket-Type", kind.encode()
    body = b"\x05READY" + bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
    return bytes((COMMAND, len(body))) + body


SYSTEMS = (ZeroMQRaw(),)
