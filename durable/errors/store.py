"""What is wrong with one store, a directory."""

from __future__ import annotations

from collections.abc import Iterable

from .root import DurableError


class StoreError(DurableError):
    """Abstract: something about one store."""


class StoreInUse(StoreError):
    """Another process, or this one, has `path` open. Stop that broker, or use another directory."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is open in another broker: stop that one or use another directory"
        )
        self.path = path


class ForeignStore(StoreError):
    """`path` is not one store of ours. Nothing in it was touched."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} is not a store of ours: {what}; use an empty directory")
        self.path, self.what = path, what


class NewerFormat(StoreError):
    """`what` has format `version`, we know up to `known`. Nothing was touched; use a later release."""

    def __init__(self, what: str, version: int, known: int) -> None:
        super().__init__(
            f"{what} has format version {version}, this release knows up to {known}: "
            "use the release that wrote it"
        )
        self.what, self.version, self.known = what, version, known


class StoreKeyMissing(StoreError):
    """`what` says why a key is needed, and which. Nothing was touched."""

    def __init__(self, what: str) -> None:
        super().__init__(f"no key: {what}")
        self.what = what


class StoreKeyWrong(StoreError):
    """The data key of the store in `path` is kept for the key ids `wanted`; `held` are others.

    Nothing was touched. The ids are those of `mesh keys show`: use the keys of that cluster, or the
    generation that has been dropped.
    """

    def __init__(self, path: str, cluster: str, wanted: Iterable[str], held: Iterable[str]) -> None:
        self.path, self.cluster = path, cluster
        self.wanted, self.held = tuple(wanted), tuple(held)
        super().__init__(
            f"{path} is encrypted for keys {', '.join(self.wanted)} of cluster {cluster!r}; "
            f"held are {', '.join(self.held) or 'none'}: use the keys it was written with"
        )


class StoreFull(StoreError):
    """No room for `needed_bytes`: the next segment of `segment_bytes` cannot be made.

    Nothing was stored. `free_bytes` is what the file system had left, of which `kept_bytes` are for
    others. Acks are still taken; publishes work again by themselves when there is space.
    """

    def __init__(
        self, needed_bytes: int, segment_bytes: int, free_bytes: int, kept_bytes: int = 0
    ) -> None:
        # By setting, for Python programs, and by option.
        kept = (
            f" and leaves {kept_bytes} to others (free_bytes_min, --free-min)" if kept_bytes else ""
        )
        super().__init__(
            f"disk full: no room for {needed_bytes} bytes; a segment needs {segment_bytes} bytes "
            f"(segment_bytes, --segment-size){kept}, {free_bytes} are free: free some space or consume, then send again"
        )
        self.needed_bytes, self.segment_bytes = needed_bytes, segment_bytes
        self.free_bytes, self.kept_bytes = free_bytes, kept_bytes


class StoreBusy(StoreError):
    """Nothing was stored: `reason`. Wait for room and append again."""

    def __init__(self, needed_bytes: int, reason: str) -> None:
        super().__init__(f"not now, {needed_bytes} bytes have to wait: {reason}")
        self.needed_bytes, self.reason = needed_bytes, reason


class StoreFailed(StoreError):
    """The disk failed: `reason`. What was not confirmed before is unknown, and stays so.

    A failed fdatasync is not tried again: the kernel may have dropped what it could not write, and
    say yes the second time. Check the disk, then restart the broker; it recovers what is there.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the store has stopped: {reason}: check the disk, then restart the broker"
        )
        self.reason = reason


class StoreClosed(StoreError):
    """The store has been closed; what was not durable by then is unknown."""


class NotInLog(StoreError):
    """No record at log position `position`; those there are lie in [`start`, `end`)."""

    def __init__(self, position: int, start: int, end: int) -> None:
        super().__init__(
            f"no record at log position {position} (freed, in a gap, or not durable yet); "
            f"the log holds [{start}, {end})"
        )
        self.position, self.start, self.end = position, start, end


class RecordDamaged(StoreError):
    """The `what` at log position `position` has a wrong checksum or impossible lengths."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(
            f"damaged {what} at log position {position}: `mesh-broker verify` tells more"
        )
        self.what, self.position = what, position
