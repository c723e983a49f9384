"""What two nodes say before they share a link, and the bytes it is said in.

    INTRODUCE   here is my announcement; who else is there?      to any node, on a connection of
    INTRODUCED  mine, and those I know                           its own, by whoever found it
    HELLO       lane L of link K, from node N, to node M         first frame on every lane
    WELCOME     accepted; this is what I have received
    REFUSE      no, and why                                      the dialler decides what next

Bodies are msgpack arrays in the order of the fields below. They come from a peer that so far has
proven no more than that it holds a key, so each field is checked for type and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from ..errors import RemoteProtocolError

BODY_BYTES_MAX = 192 * 1024
ANNOUNCEMENTS_MAX = 32
"""Per GOSSIP or INTRODUCED record; more travel in several."""
TEXT_BYTES_MAX = 4096
NAMES_MAX = 256
"""Idempotent targets of one node."""

CROSSING, NOT_ME, GONE, FULL, UNTRUSTED, BAD = (
    "crossing", "not me", "gone", "full", "untrusted", "bad",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one end takes, in bytes; both keep to the smaller of each."""

    window: int
    frame_max: int
    record_max: int
    reassembly_max: int
    """All unfinished records together."""

    def fields(self) -> list[int]:
        return [self.window, self.frame_max, self.record_max, self.reassembly_max]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First frame on a lane. `resume`: the link exists already, go on with it or say GONE."""

    lane: int
    node: bytes
    target: bytes
    link_id: bytes
    resume: bool
    expects: int
    limits: Limits
    announcement: bytes
    idempotent: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return _pack(
            self.lane, self.node, self.target, self.link_id, self.resume, self.expects,
            self.limits.fields(), self.announcement, list(self.idempotent),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer to a HELLO. `idempotent`: targets of this node that are safe to ask twice."""

    lane: int
    node: bytes
    link_id: bytes
    expects: int
    limits: Limits
    announcement: bytes
    idempotent: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return _pack(
            self.lane, self.node, self.link_id, self.expects, self.limits.fields(),
            self.announcement, list(self.idempotent),
        )  # fmt: skip


def decode_hello(body: bytes) -> Hello:
    """Raises RemoteProtocolError."""
    fields = _unpack(body, "HELLO", (int, bytes, bytes, bytes, bool, int, list, bytes, list))
    lane, node, target, link_id, resume, expects, limits, announcement, names = fields
    _check(
        "HELLO", lane in (0, 1), len(node) == 16, len(target) == 16, len(link_id) == 16,
        expects >= 1,
    )  # fmt: skip
    return Hello(
        lane=lane, node=node, target=target, link_id=link_id, resume=resume, expects=expects,
        limits=_limits(limits), announcement=announcement, idempotent=_strings(names),
    )  # fmt: skip


def decode_welcome(body: bytes) -> Welcome:
    """Raises RemoteProtocolError."""
    fields = _unpack(body, "WELCOME", (int, bytes, bytes, int, list, bytes, list))
    lane, node, link_id, expects, limits, announcement, names = fields
    _check("WELCOME", lane in (0, 1), len(node) == 16, len(link_id) == 16, expects >= 1)
    return Welcome(
        lane=lane, node=node, link_id=link_id, expects=expects, limits=_limits(limits),
        announcement=announcement, idempotent=_strings(names),
    )  # fmt: skip


def encode_announcements(announcements: Sequence[bytes]) -> bytes:
    """Body of INTRODUCE (one), INTRODUCED and GOSSIP."""
    return _pack(*announcements)


def decode_announcements(body: bytes) -> list[bytes]:
    """Raises RemoteProtocolError."""
    fields = _load(body, "announcements")
    _check(
        "announcements", len(fields) <= ANNOUNCEMENTS_MAX,
        *(isinstance(field, bytes) for field in fields),
    )  # fmt: skip
    return fields


def encode_values(*values: Any) -> bytes:
    """A small control body: a msgpack array."""
    return _pack(*values)


def decode_values(body: bytes, what: str, types: Sequence[type]) -> list[Any]:
    """The values of a small control body, of just these types. Raises RemoteProtocolError."""
    return _unpack(body, what, types)


def clip(text: str) -> str:
    """Text of any origin, as much of it as a peer accepts: a longer one would cost the link."""
    return text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")


def _pack(*fields: Any) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def _load(body: bytes, what: str) -> list[Any]:
    if len(body) > BODY_BYTES_MAX:
        raise RemoteProtocolError(f"{what} of {len(body)} bytes, the limit is {BODY_BYTES_MAX}")
    try:
        fields = msgpack.unpackb(
            body, max_array_len=1024, max_map_len=256, max_str_len=TEXT_BYTES_MAX, max_bin_len=8192,
            max_ext_len=0,
        )  # fmt: skip
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"{what} is not msgpack: {type(error).__name__}") from None
    if not isinstance(fields, list):
        raise RemoteProtocolError(f"{what} is not an array")
    return fields


def _unpack(body: bytes, what: str, types: Sequence[type]) -> list[Any]:
    fields = _load(body, what)
    # Fields may be added at the end by later versions; the ones we know must be there.
    _check(what, len(fields) >= len(types))
    _check(what, *(type(field) is wanted for field, wanted in zip(fields, types, strict=False)))
    return fields[: len(types)]


def _limits(values: list[Any]) -> Limits:
    _check("limits", len(values) >= 4, *(type(value) is int and value > 0 for value in values))
    window, frame_max, record_max, reassembly_max = values[:4]
    return Limits(
        window=window, frame_max=frame_max, record_max=record_max, reassembly_max=reassembly_max
    )


def _strings(values: list[Any]) -> tuple[str, ...]:
    _check("names", len(values) <= NAMES_MAX, *(isinstance(value, str) for value in values))
    return tuple(values)


def _check(what: str, *conditions: bool) -> None:
    if not all(conditions):
        raise RemoteProtocolError(f"{what} with an impossible field")
