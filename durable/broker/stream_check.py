"""Whether new streams may be declared with their patterns, and whether the broker's node can capture these as well."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

from ..definitions import StreamDefinition
from ..routing.permissions import for_capture
from ..turns import some_at_once
from ..vhost.vhost import Vhost


class StreamCheck:
    """Checks streams that do not exist yet. `now` has to be called in the turn in which they are declared: the lock of
    a vhost protects neither the permissions in `/` nor what other vhosts capture.

    Both raise:
        AccessRefused: the cluster may not capture one of the patterns in one of the vhosts.
        TooManyPatterns: all vhosts together would have too many. Patterns that exist already are always allowed.
    """

    def __init__(
        self, vhosts: Sequence[Vhost], cluster: str, streams: Iterable[StreamDefinition],
        check_room: Callable[[int], None],
    ) -> None:  # fmt: skip
        """
        Args:
            vhosts: those in which `cluster` needs the permission; first the one of the streams.
            check_room: raises TooManyPatterns if there is no room for so many new patterns.
        """
        self._cluster, self._check_room = cluster, check_room
        self._permissions = {one.name: one.registry.permissions for one in vhosts}
        self._existing = vhosts[0].registry.patterns
        self._unread = (pattern for stream in streams for pattern in stream.patterns)
        self._patterns: dict[str, None] = {}
        """Those compared so far, as a set."""
        self._versions: dict[str, int] = {}
        """By vhost, the version of the permissions that the patterns have been compared with."""

    def steps(self) -> Generator[None]:
        """Check, some patterns at a time; `now` is quick then, unless permissions change meanwhile."""
        versions = {name: one.version for name, one in self._permissions.items()}
        count = 0
        for some in some_at_once(self._unread):
            new = dict.fromkeys(one for one in some if one not in self._patterns)
            for vhost in self._permissions:
                self._check_access(vhost, new)
            self._patterns |= new
            count += sum(one not in self._existing for one in new)
            yield
        self._check_room(count)
        self._versions = versions

    def now(self) -> None:
        """Check in one turn."""
        self._patterns |= dict.fromkeys(self._unread)
        for vhost, permissions in self._permissions.items():
            if permissions.version != self._versions.get(vhost):
                self._check_access(vhost, self._patterns)
        self._check_room(len(self._patterns.keys() - self._existing.keys()))

    def _check_access(self, vhost: str, patterns: Iterable[str]) -> None:
        self._permissions[vhost].check(self._cluster, for_capture(patterns), vhost)
