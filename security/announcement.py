"""Announcements: signed statements "node X runs, is a member of these clusters, and can be reached there".

Version 2 (pinned by tests/golden/announcement-v2.hex), at most 4096 bytes:

    at  size  field
     0     1  version, 2
     1     2  length of the statement, little endian
     3        statement: msgpack array of 8
                node          bin, 16 bytes
                incarnation   int, 0 <= n < 2**64
                issued        int, us since 1970, 0 <= n < 2**64
                lifetime      int, s, 1 to 604,800 (a week)
                host          bin, 8 bytes
                signers       array of 1 to 32 different [cluster: str, key id: bin, 8 bytes]
                endpoints     array of 0 to 64 [uri: str "tcp://host:port", key id: bin, 8 bytes]
                left          bool
              Ed25519 signatures, 64 bytes each, one for every signer, in their order

A signature covers bytes [0, 3 + length): everything but the signatures. Every key generation of every
cluster signs, so a reader that knows any one of the keys can verify. Only clusters whose signature verified
count as claimed, at most 16. The list of signers is itself signed, so nobody can remove a cluster from an
announcement by leaving out its signature (in version 1, before the first release, that was possible). Nodes
have the same host value if they run on one machine and in one network namespace, so that loopback reaches them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgpack

from .errors import Ahead, CannotAnnounce, Expired, Forged, Malformed, Untrusted
from .keyring import Keyring
from .keys import ClusterKeys
from .names import CLUSTER
from .unpacking import UNPACK_ERRORS

VERSION = 2
PREFIX_BYTES, SIGNATURE_BYTES = 3, 64
SIZE_BYTES_MAX = 4096
"""Enough for 16 clusters with two generations each, little enough to copy around in gossip."""
CLUSTERS_MAX, ENDPOINTS_MAX, SIGNERS_MAX = 16, 64, 32
LIFETIME_S_MAX = 7 * 86400
U64_MAX = (1 << 64) - 1
URI = re.compile(
    r"tcp://(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})"
)
Signer = tuple[str, bytes]
"""Cluster, key id."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and the id of the server key that is used there."""

    uri: str
    key_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One node's statement about itself. `left`: the node is leaving the mesh."""

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
        """Orders the announcements of one node: the newer one compares greater."""
        return self.incarnation, self.issued_us

    @property
    def expires_us(self) -> int:
        return self.issued_us + self.lifetime_s * 1_000_000

    def sign(self, keys: Sequence[ClusterKeys]) -> bytes:
        """Return the announcement as bytes, signed with each of `keys`: every generation of every cluster.

        Raises:
            CannotAnnounce: a limit is exceeded or a field is impossible, so that every reader would refuse it;
                or the clusters of `keys` are not exactly `clusters`.
            NoKey: one of `keys` is a public half.
        """
        signers = [key for cluster in self.clusters for key in keys if key.cluster == cluster]
        if {key.cluster for key in keys} != set(self.clusters) or len(signers) != len(keys):
            raise CannotAnnounce("the clusters and those of the keys to sign with are not the same")
        endpoints = [[endpoint.uri, endpoint.key_id] for endpoint in self.endpoints]
        statement = msgpack.packb(
            [
                self.node, self.incarnation, self.issued_us, self.lifetime_s, self.host,
                [[key.cluster, key.key_id] for key in signers], endpoints, self.left,
            ]
        )  # fmt: skip
        # The length field has two bytes: it could not hold the length of more than 64 KiB.
        if len(statement) > SIZE_BYTES_MAX:
            raise CannotAnnounce(
                f"a statement of {len(statement)} bytes exceeds the limit of {SIZE_BYTES_MAX} bytes"
            )
        signed = bytes((VERSION,)) + len(statement).to_bytes(2, "little") + statement
        data = signed + b"".join(key.sign(signed) for key in signers)
        # Apply the readers' own checks now: later, the only symptom would be that every reader refuses it.
        try:
            _parse(data)
        except Malformed as error:
            raise CannotAnnounce(str(error)) from None
        return data


def read_announcement(
    data: bytes, keyring: Keyring, *, now_us: int, skew_s: int = 300
) -> Announcement:
    """Decode and verify an announcement; the keyring learns the clusters that were proven.

    Args:
        data: from an untrusted sender. The cost is bounded: at most 32 signatures are verified.
        now_us: microseconds since 1970.
        skew_s: how far apart the clocks of two nodes may be.
    Returns:
        The announcement, with only those `clusters` whose claim was proven, in their original order; at least one.
    Raises:
        Malformed: the bytes do not have the format of the module docstring.
        Forged: a signature does not verify with the trusted key that it names.
        Untrusted: no claimed cluster is signed by a key the keyring trusts for that name.
        Expired: more than `skew_s` past its lifetime.
        Ahead: issued more than `skew_s` in the future.
    """
    claimed, signers, signed = _parse(data)
    proven = _proven_clusters(signed, signers, data[len(signed) :], keyring)
    clusters = tuple(cluster for cluster in claimed.clusters if cluster in proven)
    if not clusters:
        raise Untrusted(_describe_unproven(claimed))
    who = f"node {claimed.node.hex()[:8]} of {clusters[0]}"
    late_us = now_us - claimed.expires_us
    if late_us > skew_s * 1_000_000:
        raise Expired(late_us / 1e6, who)
    early_us = claimed.issued_us - now_us
    if early_us > skew_s * 1_000_000:
        raise Ahead(early_us / 1e6, who)
    for cluster in clusters:
        keyring.learn(cluster)
    return replace(claimed, clusters=clusters)


def _describe_unproven(claimed: Announcement) -> str:
    """Describe the sender for the log: two networks may share one LAN, or a key may have been forgotten."""
    at = f" at {claimed.endpoints[0].uri}" if claimed.endpoints else ""
    who = f"node {claimed.node.hex()[:8]}{at}, which claims to be of cluster {claimed.clusters[0]}"
    return f"{who}, has no key trusted here"


def _proven_clusters(
    signed: bytes, signers: Sequence[Signer], signatures: bytes, keyring: Keyring
) -> set[str]:
    proven: set[str] = set()
    for n, (cluster, key_id) in enumerate(signers):
        signature = signatures[n * SIGNATURE_BYTES : (n + 1) * SIGNATURE_BYTES]
        for pair in keyring.trusted(cluster):
            if pair.key_id != key_id:
                continue
            if not pair.verifies(signed, signature):
                raise Forged(f"the signature of cluster {cluster!r} does not verify")
            proven.add(cluster)
    return proven


def _parse(data: bytes) -> tuple[Announcement, list[Signer], bytes]:
    """Return the statement, its signers, and the bytes that the signatures cover; verify nothing."""
    if not PREFIX_BYTES < len(data) <= SIZE_BYTES_MAX:
        raise Malformed(f"{len(data)} bytes, want at most {SIZE_BYTES_MAX}")
    if data[0] != VERSION:
        raise Malformed(f"version {data[0]}, this node reads {VERSION}")
    end = PREFIX_BYTES + int.from_bytes(data[1:PREFIX_BYTES], "little")
    claimed, signers = _statement(_unpack(data[PREFIX_BYTES:end]))
    _check("signatures", len(data) - end == SIGNATURE_BYTES * len(signers))
    return claimed, signers, data[:end]


def _statement(value: Any) -> tuple[Announcement, list[Signer]]:
    node, incarnation, issued_us, lifetime_s, host, signers, endpoints, left = _fields(
        "statement", value, (bytes, int, int, int, bytes, list, list, bool)
    )
    _check("node", len(node) == 16)
    _check("incarnation", 0 <= incarnation <= U64_MAX)
    _check("issued", 0 <= issued_us <= U64_MAX)
    _check("lifetime", 0 < lifetime_s <= LIFETIME_S_MAX)
    _check("host", len(host) == 8)
    # Checked before any key is looked up: a network keyring derives keys for each signer (50 us).
    _check(f"signers (1 to {SIGNERS_MAX})", 0 < len(signers) <= SIGNERS_MAX)
    signers = list(map(_signer, signers))
    _check("signers: duplicate", len(set(signers)) == len(signers))
    clusters = tuple(dict.fromkeys(cluster for cluster, _ in signers))
    _check(f"clusters (at most {CLUSTERS_MAX})", len(clusters) <= CLUSTERS_MAX)
    _check(f"endpoints (at most {ENDPOINTS_MAX})", len(endpoints) <= ENDPOINTS_MAX)
    claimed = Announcement(
        node=node, incarnation=incarnation, issued_us=issued_us, lifetime_s=lifetime_s, host=host,
        clusters=clusters, endpoints=tuple(map(_endpoint, endpoints)), left=left,
    )  # fmt: skip
    return claimed, signers


def _signer(value: Any) -> Signer:
    cluster, key_id = _fields("signer", value, (str, bytes))
    _check("signing cluster", CLUSTER.fullmatch(cluster) is not None)
    _check("signer's key id", len(key_id) == 8)
    return cluster, key_id


def _endpoint(value: Any) -> Endpoint:
    uri, key_id = _fields("endpoint", value, (str, bytes))
    match = URI.fullmatch(uri)
    _check("endpoint: want tcp://host:port", match is not None and 0 < int(match["port"]) < 65536)
    _check("endpoint's key id", len(key_id) == 8)
    return Endpoint(uri, key_id)


def _fields(name: str, value: Any, types: tuple[type, ...]) -> list[Any]:
    """Return `value` if it is an array of exactly these types; bool does not pass as int."""
    _check(name, type(value) is list and tuple(map(type, value)) == types)
    return list(value)


def _unpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(
            data, max_str_len=512, max_bin_len=512, max_array_len=ENDPOINTS_MAX, max_map_len=0,
            max_ext_len=0,
        )  # fmt: skip
    except UNPACK_ERRORS as error:
        raise Malformed(f"not msgpack: {type(error).__name__}") from None


def _check(name: str, condition: bool) -> None:
    if not condition:
        raise Malformed(f"missing or invalid: {name}")
