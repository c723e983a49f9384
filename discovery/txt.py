"""An announcement as the TXT record of a `_mesh._tcp` service, and back. No I/O.

    length byte, "txtvers=1"            RFC 6763 6.7: the version comes first
    length byte, "a0=" + 250 bytes
    length byte, "a1=" + 250 bytes
    ...
    length byte, "an=" + the rest       1 to 250 bytes

A string of a TXT record holds 255 bytes, hence the pieces; their values are binary (RFC 6763 6.5).
Unknown keys are skipped, so that later versions may add some. Pinned by tests/unit/discovery.
"""

from __future__ import annotations

from .errors import AnnouncementTooLarge

ANNOUNCEMENT_BYTES_MAX = 1300
"""With names and addresses the packet stays close to one Ethernet frame; mDNS itself allows 8,966 bytes."""
PIECE_BYTES_MAX = 250
"""The format's limit is 255, less the key."""

_VERSION = b"txtvers=1"


def encode_txt(announcement: bytes) -> bytes:
    """Return the record's bytes. Raises AnnouncementTooLarge above ANNOUNCEMENT_BYTES_MAX."""
    assert announcement, "an empty announcement announces nothing"
    if len(announcement) > ANNOUNCEMENT_BYTES_MAX:
        raise AnnouncementTooLarge(len(announcement), ANNOUNCEMENT_BYTES_MAX)
    starts = range(0, len(announcement), PIECE_BYTES_MAX)
    pieces = (announcement[start : start + PIECE_BYTES_MAX] for start in starts)
    strings = [_VERSION, *(b"a%d=%b" % item for item in enumerate(pieces))]
    return b"".join(bytes([len(string)]) + string for string in strings)


def decode_txt(record: bytes) -> bytes | None:
    """Return the announcement in `record`; None if there is none, or not in the form that `encode_txt` makes.

    Never raises, because the record may come from anybody on the network.
    """
    strings: dict[bytes, bytes] = {}
    at = 0
    while at < len(record):
        end = at + 1 + record[at]
        if end > len(record):
            return None
        key, _, value = record[at + 1 : end].partition(b"=")
        strings.setdefault(key, value)  # RFC 6763 6.4: the first of equal keys counts
        at = end
    if strings.get(b"txtvers") != b"1":
        return None
    pieces: list[bytes] = []
    while (piece := strings.get(b"a%d" % len(pieces))) is not None:
        pieces.append(piece)
    announcement = b"".join(pieces)
    return announcement if 0 < len(announcement) <= ANNOUNCEMENT_BYTES_MAX else None
