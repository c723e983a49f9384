"""Proves, on each link, which clusters the other end is a member of.

CURVE proves one key at each end: that of the dialling cluster, and that of the cluster that was dialled. For a
node's other clusters there is only its announcement, which proves that this node holds their keys, but not that the
other end of this link is that node: everybody gets announcements. So with key files, each greeting of a node in
several clusters contains a proof. It is signed with all of the node's keys, and is of no use for any other link:

    at         name of the receiver's cluster whose key is in use on the connection
    signed     "mesh-link-1", u8 record type, link id, signer's node id, receiver's node id, at

If all keys are derived from one secret there is nothing more to prove: whoever has one key has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from security.announcement import Announcement
from security.keyring import Keyring

from .frame import Kind
from .hello import NO_PROOF, Proof
from .link import Link

DOMAIN = b"mesh-link-1"
"""No announcement begins like this: its first byte is not a version of theirs."""


class Prover:
    """Makes and checks the proofs of one node, `me`, a member of `clusters`."""

    def __init__(self, me: bytes, clusters: Sequence[str], keyring: Keyring) -> None:
        self._me, self._clusters, self._keyring = me, clusters, keyring

    def prove(self, kind: Kind, link_id: bytes, peer: bytes, at: str) -> Proof:
        """Return the proof for a greeting to `peer`, on a connection that uses the key of its cluster `at`."""
        if len(self._clusters) == 1 or self._keyring.door():
            return NO_PROOF
        keys = [pair for cluster in self._clusters for pair in self._keyring.own(cluster)]
        signed = _signed(kind, link_id, self._me, peer, at)
        return Proof(at, tuple((pair.key_id, pair.sign(signed)) for pair in keys))

    def proven_by_hello(
        self, curve_cluster: str, link_id: bytes, announcement: Announcement, proof: Proof
    ) -> tuple[str, ...]:
        """Return those of the announced clusters that a HELLO proves, in the announcement's order.

        Args:
            curve_cluster: the cluster whose key CURVE has proven.
        """
        return self._proven(curve_cluster, Kind.HELLO, link_id, announcement, proof)

    def proven_by_welcome(
        self, link: Link, announcement: Announcement, proof: Proof
    ) -> tuple[str, ...]:
        """Return the same for a WELCOME on a link."""
        return self._proven(link.cluster, Kind.WELCOME, link.link_id, announcement, proof)

    def _proven(
        self, curve_cluster: str, kind: Kind, link_id: bytes, announcement: Announcement,
        proof: Proof,
    ) -> tuple[str, ...]:  # fmt: skip
        if self._keyring.door():
            return announcement.clusters
        proven = {curve_cluster}
        if proof.at in self._clusters:
            signed = _signed(kind, link_id, announcement.node, self._me, proof.at)
            for key_id, signature in proof.signatures:
                pair = self._keyring.by_id(key_id)
                if pair is None or pair.cluster in proven:
                    continue
                if pair.cluster in announcement.clusters and pair.verifies(signed, signature):
                    proven.add(pair.cluster)
        return tuple(cluster for cluster in announcement.clusters if cluster in proven)


def _signed(kind: Kind, link_id: bytes, signer: bytes, receiver: bytes, at: str) -> bytes:
    return DOMAIN + bytes((kind,)) + link_id + signer + receiver + at.encode()
