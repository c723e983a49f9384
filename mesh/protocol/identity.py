"""Who this node is, and what it says of itself: an announcement that is signed anew in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from security.announcement import Announcement, Endpoint
from security.keyring import Keyring

from ..config import MeshConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this node is.

    Args:
        node: 16 random bytes per process start.
        incarnation: microseconds since 1970 when it joined; a lower one never wins.
        host: same value = same machine and network namespace, so loopback reaches it.
    """

    node: bytes
    incarnation: int
    host: bytes


class OwnAnnouncement:
    """Due every `announce_s`, and when the wall clock was set: by the old time nobody new would believe it."""

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
        """What the wall clock was ahead of ours when it was signed."""

    def sign(self, now_s: float, *, left: bool = False) -> bytes:
        """It, as of now. Raises as `Announcement.sign` does."""
        config, identity = self._config, self._identity
        # A clock that was set back a little: or it would be a replay, until the clock has caught up.
        later_us, clock_us = self._issued_us + 1, self._wall_us()
        close = later_us - clock_us <= config.clock_skew_s * 1_000_000
        self._issued_us = max(later_us, clock_us) if close or left else clock_us
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
        set_us = abs(self._wall_us() - round(now_s * 1_000_000) - self._offset_us)
        # Less than a second is a loop that is late.
        was_set = set_us > max(self._config.clock_skew_s, 1) * 1_000_000
        return was_set or now_s >= self._due_s
