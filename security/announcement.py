"""Announcements: "node X runs, is a member of these clusters, and can be reached there", signed.

Version 1 (pinned by tests/golden/announcement-v1.hex):

    at  size  field
     0     1  version, 1
     1     2  length of the statement, little endian
     3        statement: msgpack array [node (16 bytes), incarnation, issued us, lifetime s,
              host (8 bytes), [cluster, ...], [[uri, key id (8 bytes)], ...], left]
              signatures: msgpack array [[cluster, key id (8 bytes), Ed25519 (64 bytes)], ...]

A signature covers bytes [0, 3 + length). Every generation of every cluster signs, so whoever knows
one of the keys can verify; only clusters whose signature verified count as claimed. A host value is
equal for nodes on one machine and in one network namespace, so that loopback reaches them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from .errors import Expired, Forged, Malformed, Untrusted
from .keyring import Keyring
from .keys import ClusterKeys

VERSION = 1
PREFIX_BYTES = 3
SIZE_BYTES_MAX = 4096
CLUSTERS_MAX, ENDPOINTS_MAX = 16, 64
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
URI = re.compile(r"tcp://[A-Za-z0-9_.:\[\]-]{1,255}:[0-9]{1,5}")
U64_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and the name of the server key that answers there."""

    uri: str
    key_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a node says of itself. `left`: a goodbye."""

    node: bytes
    incarnation: int
    issued_us: int
    lifetime_s: int
    host: bytes
    clusters: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    left: bool = False

    @property
    def version(self) -> tuple[int, int]:
        """The greater one is the newer one."""
        return self.incarnation, self.issued_us

    @property
    def expires_us(self) -> int:
        return self.issued_us + self.lifetime_s * 1_000_000

    def sign(self, keys: Sequence[ClusterKeys]) -> bytes:
        """The announcement as bytes, signed with each of `keys`."""
        endpoints = [[endpoint.uri, endpoint.key_id] for endpoint in self.endpoints]
        statement = msgpack.packb(
            [
                self.node, self.incarnation, self.issued_us, self.lifetime_s, self.host,
                list(self.clusters), endpoints, self.left,
            ]
        )  # fmt: skip
        signed = bytes((VERSION,)) + len(statement).to_bytes(2, "little") + statement
        signatures = [[pair.cluster, pair.key_id, pair.sign(signed)] for pair in keys]
        return signed + msgpack.packb(signatures)


def read_announcement(
    data: bytes, keyring: Keyring, *, now_us: int, skew_s: int = 300
) -> Announcement:
    """Decode and verify.

    Args:
        now_us: microseconds since 1970.
        skew_s: how far clocks may be apart.
    Returns:
        `clusters` are only those whose claim was proven, in their original order; at least one.
    Raises:
        Malformed, Untrusted, Forged, Expired: it is not to be believed.
    """
    if not PREFIX_BYTES < len(data) <= SIZE_BYTES_MAX:
        raise Malformed(f"{len(data)} bytes, want at most {SIZE_BYTES_MAX}")
    if data[0] != VERSION:
        raise Malformed(f"version {data[0]}, this node reads {VERSION}")
    end = PREFIX_BYTES + int.from_bytes(data[1:3], "little")
    claimed = _statement(_unpack(data[PREFIX_BYTES:end]))
    proven = _proven(data[:end], _unpack(data[end:]), keyring)
    clusters = tuple(cluster for cluster in claimed.clusters if cluster in proven)
    if not clusters:
        raise Untrusted("of no cluster that is trusted here")
    late_us = now_us - claimed.expires_us - skew_s * 1_000_000
    if late_us > 0:
        raise Expired(late_us / 1e6)
    if claimed.issued_us > now_us + skew_s * 1_000_000:
        raise Malformed("issued in the future")
    for cluster in clusters:
        keyring.learn(cluster)
    return Announcement(
        node=claimed.node, incarnation=claimed.incarnation, issued_us=claimed.issued_us,
        lifetime_s=claimed.lifetime_s, host=claimed.host, clusters=clusters,
        endpoints=claimed.endpoints, left=claimed.left,
    )  # fmt: skip


def _proven(signed: bytes, signatures: list[Any], keyring: Keyring) -> set[str]:
    _check(len(signatures) <= 2 * CLUSTERS_MAX)
    proven: set[str] = set()
    for entry in signatures:
        cluster, key_id, signature = _fields(entry, (str, bytes, bytes))
        _check(NAME.fullmatch(cluster) is not None, len(key_id) == 8, len(signature) == 64)
        for pair in keyring.trusted(cluster):
            if pair.key_id != key_id:
                continue
            if not pair.verifies(signed, signature):
                raise Forged(f"the signature of cluster {cluster!r} does not verify")
            proven.add(cluster)
    return proven


def _statement(fields: list[Any]) -> Announcement:
    node, incarnation, issued_us, lifetime_s, host, clusters, endpoints, left = _fields(
        fields, (bytes, int, int, int, bytes, list, list, bool)
    )
    _check(
        len(node) == 16, len(host) == 8, 0 <= incarnation <= U64_MAX, 0 <= issued_us <= U64_MAX,
        0 < lifetime_s <= 7 * 86400, 0 < len(clusters) <= CLUSTERS_MAX,
        len(endpoints) <= ENDPOINTS_MAX,
        *(type(name) is str and NAME.fullmatch(name) is not None for name in clusters),
    )  # fmt: skip
    places: list[Endpoint] = []
    for entry in endpoints:
        uri, key_id = _fields(entry, (str, bytes))
        _check(URI.fullmatch(uri) is not None, len(key_id) == 8)
        places.append(Endpoint(uri, key_id))
    return Announcement(
        node=node, incarnation=incarnation, issued_us=issued_us, lifetime_s=lifetime_s, host=host,
        clusters=tuple(clusters), endpoints=tuple(places), left=left,
    )  # fmt: skip


def _fields(value: Any, types: tuple[type, ...]) -> list[Any]:
    _check(isinstance(value, list) and len(value) == len(types))
    _check(*(type(field) is wanted for field, wanted in zip(value, types, strict=True)))
    return list(value)


def _unpack(data: bytes) -> list[Any]:
    try:
        value = msgpack.unpackb(
            data, max_str_len=512, max_bin_len=512, max_array_len=128, max_map_len=0, max_ext_len=0
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise Malformed(f"not msgpack: {type(error).__name__}") from None
    _check(isinstance(value, list))
    return list(value)


def _check(*conditions: bool) -> None:
    if not all(conditions):
        raise Malformed("a field is missing, or impossible")
