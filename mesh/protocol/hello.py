"""Introductions and greetings, which nodes exchange before they share a link, and their encoding.

    INTRODUCE   here is my announcement; who else is there?      to any node that was found, on a
    INTRODUCED  mine, and those I know                           connection of its own
    HELLO       lane L of link K, from node N, to node M         first frame on every lane
    WELCOME     accepted; this is what I have received
    REFUSE      no, and why                                      the dialler decides what next

Bodies are msgpack arrays in the order of the fields below. So far the peer has proven only that it holds
a key, so each field is checked for type and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from security.announcement import SIGNATURE_BYTES, SIGNERS_MAX

from ..errors import RemoteProtocolError
from .values import check, decode_values, encode_values, load_values

ANNOUNCEMENTS_MAX = 32
"""Most announcements in one GOSSIP or INTRODUCED record; more of them are split among several records."""
IDEMPOTENT_MAX = 256
"""Maximum number of idempotent targets of one node."""
KEY_ID_BYTES = 8

CROSSING, NOT_ME, GONE, FULL, UNTRUSTED, CLOCK, BAD = (
    "crossing", "not me", "gone", "full", "untrusted", "clock", "bad",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one end accepts, in bytes; of each limit both ends use the smaller value."""

    window: int
    frame_max: int
    record_max: int
    reassembly_max: int
    """For all unfinished records together."""

    def fields(self) -> list[int]:
        return [self.window, self.frame_max, self.record_max, self.reassembly_max]


@dataclass(frozen=True, slots=True)
class Proof:
    """Proves that a node is a member of its clusters: see proving.py. `signatures` are pairs of key id and
    signature; a node in one cluster has none."""

    at: str = ""
    signatures: tuple[tuple[bytes, bytes], ...] = ()

    def fields(self) -> list[Any]:
        """Return the last field of a greeting, in a list; an empty list if there is nothing to prove."""
        return [[self.at, *map(list, self.signatures)]] if self.signatures else []


NO_PROOF = Proof()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First frame on a lane.

    `resume`: the link exists already; the acceptor resumes it, or refuses with GONE. `expects`: the next
    sequence that the sender expects on this lane.
    """

    lane: int
    node: bytes
    target: bytes
    link_id: bytes
    resume: bool
    expects: int
    limits: Limits
    announcement: bytes
    idempotent: tuple[str, ...] = ()
    proof: Proof = NO_PROOF

    def encode(self) -> bytes:
        return encode_values(
            self.lane, self.node, self.target, self.link_id, self.resume, self.expects,
            self.limits.fields(), self.announcement, list(self.idempotent), *self.proof.fields(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer to a HELLO. `idempotent`: targets of this node whose requests may safely be executed twice."""

    lane: int
    node: bytes
    link_id: bytes
    expects: int
    limits: Limits
    announcement: bytes
    idempotent: tuple[str, ...] = ()
    proof: Proof = NO_PROOF

    def encode(self) -> bytes:
        return encode_values(
            self.lane, self.node, self.link_id, self.expects, self.limits.fields(),
            self.announcement, list(self.idempotent), *self.proof.fields(),
        )  # fmt: skip


def decode_hello(body: bytes) -> Hello:
    """Decode the body of a HELLO. Raises RemoteProtocolError."""
    types = (int, bytes, bytes, bytes, bool, int, list, bytes, list)
    fields = decode_values(body, "HELLO", types, defaults=([],))
    lane, node, target, link_id, resume, expects, limits, announcement, names, proof = fields
    check(
        "HELLO", lane in (0, 1), len(node) == 16, len(target) == 16, len(link_id) == 16,
        expects >= 1,
    )  # fmt: skip
    return Hello(
        lane=lane, node=node, target=target, link_id=link_id, resume=resume, expects=expects,
        limits=_limits(limits), announcement=announcement, idempotent=_strings(names),
        proof=_proof(proof),
    )  # fmt: skip


def decode_welcome(body: bytes) -> Welcome:
    """Decode the body of a WELCOME. Raises RemoteProtocolError."""
    types = (int, bytes, bytes, int, list, bytes, list)
    fields = decode_values(body, "WELCOME", types, defaults=([],))
    lane, node, link_id, expects, limits, announcement, names, proof = fields
    check("WELCOME", lane in (0, 1), len(node) == 16, len(link_id) == 16, expects >= 1)
    return Welcome(
        lane=lane, node=node, link_id=link_id, expects=expects, limits=_limits(limits),
        announcement=announcement, idempotent=_strings(names), proof=_proof(proof),
    )  # fmt: skip


def encode_announcements(announcements: Sequence[bytes]) -> bytes:
    """Return the body of an INTRODUCE (with one announcement), INTRODUCED or GOSSIP."""
    return encode_values(*announcements)


def decode_announcements(body: bytes) -> list[bytes]:
    """Return the announcements in such a body. Raises RemoteProtocolError."""
    fields = load_values(body, "announcements")
    check(
        "announcements", len(fields) <= ANNOUNCEMENTS_MAX,
        *(isinstance(field, bytes) for field in fields),
    )  # fmt: skip
    return fields


def decode_announcement(body: bytes, what: str) -> bytes:
    """Return the one announcement in the body of `what`. Raises RemoteProtocolError if there is not exactly one."""
    announcements = decode_announcements(body)
    if len(announcements) != 1:
        raise RemoteProtocolError(f"{what} with {len(announcements)} announcements")
    return announcements[0]


def _proof(values: list[Any]) -> Proof:
    """Decode a greeting's last field, the inverse of `Proof.fields`. Raises RemoteProtocolError."""
    if not values:
        return NO_PROOF
    at, *signatures = values
    check("proof", type(at) is str, len(signatures) <= SIGNERS_MAX)
    for pair in signatures:
        check("proof", type(pair) is list and list(map(type, pair)) == [bytes, bytes])
        check("proof", list(map(len, pair)) == [KEY_ID_BYTES, SIGNATURE_BYTES])
    return Proof(at, tuple(map(tuple, signatures)))


def _limits(values: list[Any]) -> Limits:
    check("limits", len(values) >= 4, *(type(value) is int and value > 0 for value in values))
    window, frame_max, record_max, reassembly_max = values[:4]
    return Limits(
        window=window, frame_max=frame_max, record_max=record_max, reassembly_max=reassembly_max
    )


def _strings(values: list[Any]) -> tuple[str, ...]:
    check("names", len(values) <= IDEMPOTENT_MAX, *(isinstance(value, str) for value in values))
    return tuple(values)
