"""Identity of this node, and its announcement, which is signed again before it expires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from security.announcement import Announcement, Endpoint
from security.keyring import Keyring

from ..config import MeshConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells this node from others.

    Args:
        node: 16 random bytes per process start.
        incarnation: microseconds since 1970 when it joined; an announcement never replaces one with a higher value.
        host: equal for nodes of one machine and network namespace, which reach each other by loopback.
    """

    node: bytes
    incarnation: int
    host: bytes


class OwnAnnouncement:
    """Announcement of this node. It is due every `announce_s`, and when the wall clock was set: nodes that do not know
    this one yet would refuse the old time."""

    def __init__(
        self, identity: Identity, config: MeshConfig, keyring: Keyring, wall_us: Callable[[], int]
    ) -> None:
        self._identity, self._config, self._keyring = identity, config, keyring
        self._wall_us = wall_us
        self.endpoints: Sequence[Endpoint] = ()
        """Where the node can be reached."""
        self._due_s = 0.0
        self._issued_us = 0
        self._offset_us = 0
        """How far the wall clock was ahead of the monotonic one when the announcement was signed."""

    def sign(self, now_s: float, *, left: bool = False) -> bytes:
        """Return the announcement, signed as of now. Raises as `Announcement.sign` does."""
        config, identity = self._config, self._identity
        # If the clock was set back a little, go on from the time before: otherwise peers would refuse the
        # announcement as replayed, until the clock has caught up.
        next_us, clock_us = self._issued_us + 1, self._wall_us()
        within_skew = next_us - clock_us <= config.clock_skew_s * 1_000_000
        self._issued_us = max(next_us, clock_us) if within_skew or left else clock_us
        announcement = Announcement(
            node=identity.node, incarnation=identity.incarnation, issued_us=self._issued_us,
            lifetime_s=config.lifetime_s, host=identity.host, clusters=config.clusters,
            endpoints=tuple(self.endpoints), left=left,
        )  # fmt: skip
        keys = [keys for cluster in config.clusters for keys in self._keyring.own(cluster)]
        raw = announcement.sign(keys)
        self._due_s = now_s + config.announce_s
        self._offset_us = clock_us - round(now_s * 1_000_000)
        return raw

    def is_due(self, now_s: float) -> bool:
        jump_us = abs(self._wall_us() - round(now_s * 1_000_000) - self._offset_us)
        # Less than a second is only a late loop.
        was_set = jump_us > max(self._config.clock_skew_s, 1) * 1_000_000
        return was_set or now_s >= self._due_s
