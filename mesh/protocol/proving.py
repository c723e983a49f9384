"""Proves, on each link, which clusters the other end is a member of.

CURVE proves one key: that of the dialler's cluster, and that of the cluster that was dialled. Of further
clusters an announcement proves only that the node has their keys, and not that it is this one: announcements
are told to everybody. So with key files each greeting of a node in several clusters has a proof, signed by
all of its keys, that nobody else can use for any other link:

    at         name of the receiver's cluster whose key is in use on the connection
    signed     "mesh-link-1", u8 record type, link id, signer's node id, receiver's node id, at

Where one secret makes all keys there is nothing more to prove: whoever has one key has them all.
"""

from __future__ import annotations

from collections.abc import Sequence

from security.announcement import Announcement
from security.keyring import Keyring

from .frame import Kind
from .hello import NO_PROOF, Proof
from .link import Link

DOMAIN = b"mesh-link-1"
"""No announcement begins with it: its first byte is no version of theirs."""


class Prover:
    """Of one node, `me`, which is a member of `clusters`."""

    def __init__(self, me: bytes, clusters: Sequence[str], keyring: Keyring) -> None:
        self._me, self._clusters, self._keyring = me, clusters, keyring

    def prove(self, kind: Kind, link_id: bytes, peer: bytes, at: str) -> Proof:
        """What belongs into a greeting to `peer`, in whose cluster `at` the connection ends."""
        if len(self._clusters) == 1 or self._keyring.door():
            return NO_PROOF
        keys = [pair for cluster in self._clusters for pair in self._keyring.own(cluster)]
        signed = _signed(kind, link_id, self._me, peer, at)
        return Proof(at, tuple((pair.key_id, pair.sign(signed)) for pair in keys))

    def greeted(
        self, shown: str, link_id: bytes, announcement: Announcement, proof: Proof
    ) -> tuple[str, ...]:
        """Those of the announcement's clusters that a HELLO proves, in its order.

        Args:
            shown: the cluster whose key CURVE has proven.
        """
        return self._proven(shown, Kind.HELLO, link_id, announcement, proof)

    def welcomed(self, link: Link, announcement: Announcement, proof: Proof) -> tuple[str, ...]:
        """The same of a WELCOME to a link."""
        return self._proven(link.cluster, Kind.WELCOME, link.link_id, announcement, proof)

    def _proven(
        self, shown: str, kind: Kind, link_id: bytes, announcement: Announcement, proof: Proof
    ) -> tuple[str, ...]:
        if self._keyring.door():
            return announcement.clusters
        found = {shown}
        if proof.at in self._clusters:
            signed = _signed(kind, link_id, announcement.node, self._me, proof.at)
            for key_id, signature in proof.signatures:
                pair = self._keyring.by_id(key_id)
                if pair is None or pair.cluster in found:
                    continue
                if pair.cluster in announcement.clusters and pair.verifies(signed, signature):
                    found.add(pair.cluster)
        return tuple(cluster for cluster in announcement.clusters if cluster in found)


def _signed(kind: Kind, link_id: bytes, signer: bytes, receiver: bytes, at: str) -> bytes:
    return DOMAIN + bytes((kind,)) + link_id + signer + receiver + at.encode()
