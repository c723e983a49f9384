"""The keyring: the secret keys that this node holds, and the public keys that it trusts.

It is filled from one network secret or from key files. While keys rotate it holds two generations of a pair:
both are accepted, the newer one is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from .errors import KeyChoice, NoKey
from .keys import DOOR, SECRET_BYTES, ClusterKeys, derive

GENERATIONS_MAX = 2
LEARNED_MAX = 10_000


class Keyring(Protocol):
    """What a node needs of a keyring. All tuples have the newest generation first."""

    def own(self, cluster: str) -> tuple[ClusterKeys, ...]:
        """Return the cluster's pairs with their secret halves. Raises NoKey."""

    def trusted(self, cluster: str) -> tuple[ClusterKeys, ...]:
        """Return the cluster's trusted public keys; empty if it is not trusted."""

    def door(self) -> tuple[ClusterKeys, ...]:
        """Return the pairs for introductions if there is a network secret, else an empty tuple."""

    def introduction_keys(self) -> tuple[ClusterKeys, ...]:
        """Return the server keys to try at an address of which nothing else is known."""

    def by_id(self, key_id: bytes) -> ClusterKeys | None:
        """Return the trusted key with this id, or None."""

    def admit(self, client_public: bytes) -> str | None:
        """Return the cluster (or DOOR) that a client's public key belongs to, for ZAP; None: refuse the client."""

    def learn(self, cluster: str) -> None:
        """Remember the keys of a cluster that has proven that it belongs to the network."""


class NetworkKeyring:
    """Derives all keys from one network secret, or from two during a rotation.

    A holder of the secret can derive the pair of any cluster name, but a public key alone does not tell to which
    cluster it belongs. So `by_id` and `admit` know only clusters that are our own or were learned from a
    verified announcement.

    Args:
        secrets: 32 bytes each, newest first.
        learned_max: learned clusters to remember; beyond that the one not heard of for longest is
            forgotten. Own clusters and the door never are.
    Raises:
        KeyChoice: no secret, more than two, one of another length, or the same one twice.
    """

    def __init__(self, secrets: Sequence[bytes], *, learned_max: int = LEARNED_MAX) -> None:
        if not 1 <= len(secrets) <= GENERATIONS_MAX:
            raise KeyChoice(f"{len(secrets)} network secrets, want 1 or {GENERATIONS_MAX}")
        if any(len(secret) != SECRET_BYTES for secret in secrets):
            raise KeyChoice(f"a network secret must have {SECRET_BYTES} bytes")
        if len(set(secrets)) < len(secrets):
            raise KeyChoice("both generations of the network secret are the same")
        self._secrets, self._learned_max = tuple(secrets), learned_max
        self._pinned: dict[str, tuple[ClusterKeys, ...]] = {}
        self._learned: OrderedDict[str, tuple[ClusterKeys, ...]] = OrderedDict()
        self._by_id: dict[bytes, ClusterKeys] = {}
        self._cluster_by_public: dict[bytes, str] = {}
        self.own(DOOR)

    def __repr__(self) -> str:
        return f"<NetworkKeyring of {len(self._secrets)} generations>"

    def _derive(self, cluster: str) -> tuple[ClusterKeys, ...]:
        return tuple(derive(secret, cluster) for secret in self._secrets)

    def _index(self, pairs: Iterable[ClusterKeys]) -> None:
        for pair in pairs:
            self._by_id[pair.key_id] = pair
            self._cluster_by_public[pair.public] = pair.cluster

    def own(self, cluster: str) -> tuple[ClusterKeys, ...]:
        pairs = self._pinned.get(cluster)
        if pairs is None:
            pairs = self._pinned[cluster] = self._derive(cluster)
            self._learned.pop(cluster, None)
            self._index(pairs)
        return pairs

    def trusted(self, cluster: str) -> tuple[ClusterKeys, ...]:
        # Derived without storing it: a forged announcement may name any number of clusters.
        return self._pinned.get(cluster) or self._learned.get(cluster) or self._derive(cluster)

    def door(self) -> tuple[ClusterKeys, ...]:
        return self._pinned[DOOR]

    def introduction_keys(self) -> tuple[ClusterKeys, ...]:
        return self._pinned[DOOR]

    def by_id(self, key_id: bytes) -> ClusterKeys | None:
        return self._by_id.get(key_id)

    def admit(self, client_public: bytes) -> str | None:
        return self._cluster_by_public.get(client_public)

    def learn(self, cluster: str) -> None:
        if cluster in self._pinned:
            return
        if cluster in self._learned:
            self._learned.move_to_end(cluster)
            return
        pairs = self._learned[cluster] = self._derive(cluster)
        self._index(pairs)
        if len(self._learned) > self._learned_max:
            _, forgotten = self._learned.popitem(last=False)
            for pair in forgotten:
                del self._by_id[pair.key_id], self._cluster_by_public[pair.public]


class FileKeyring:
    """Holds pairs from files: secret halves of this node's own clusters, public halves of others.

    Args:
        pairs: at most two per cluster, newest first; no key twice.
        directory: where the files are, for errors.
    Raises:
        KeyChoice: more than two of one cluster, or one key given twice.
    """

    def __init__(self, pairs: Iterable[ClusterKeys], directory: str = "") -> None:
        self._directory = directory
        self._pairs: dict[str, list[ClusterKeys]] = {}
        self._by_id: dict[bytes, ClusterKeys] = {}
        self._cluster_by_public: dict[bytes, str] = {}
        for pair in pairs:
            generations = self._pairs.setdefault(pair.cluster, [])
            generations.append(pair)
            if len(generations) > GENERATIONS_MAX:
                raise KeyChoice(f"more than {GENERATIONS_MAX} key generations of {pair.cluster!r}")
            # With one key under two names, the order of the files would decide which cluster its holder is taken for.
            other = self._cluster_by_public.setdefault(pair.public, pair.cluster)
            if pair.key_id in self._by_id or other != pair.cluster:
                raise KeyChoice(
                    f"the same key is given twice, for {other!r} and for {pair.cluster!r}"
                )
            self._by_id[pair.key_id] = pair

    def __repr__(self) -> str:
        return f"<FileKeyring of {', '.join(self._pairs) or 'nobody'}>"

    def own(self, cluster: str) -> tuple[ClusterKeys, ...]:
        pairs = tuple(pair for pair in self._pairs.get(cluster, ()) if pair.secret is not None)
        if not pairs:
            raise NoKey(cluster, self._directory)
        return pairs

    def trusted(self, cluster: str) -> tuple[ClusterKeys, ...]:
        return tuple(self._pairs.get(cluster, ()))

    def door(self) -> tuple[ClusterKeys, ...]:
        return ()

    def introduction_keys(self) -> tuple[ClusterKeys, ...]:
        return tuple(self._by_id.values())

    def by_id(self, key_id: bytes) -> ClusterKeys | None:
        return self._by_id.get(key_id)

    def admit(self, client_public: bytes) -> str | None:
        return self._cluster_by_public.get(client_public)

    def learn(self, cluster: str) -> None:
        pass  # The files alone decide what is trusted.
