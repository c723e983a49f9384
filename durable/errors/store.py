"""Errors about one store, which is one directory."""

from __future__ import annotations

from collections.abc import Iterable

from .root import DurableError


class StoreError(DurableError):
    """Abstract: something is wrong with one store."""


def cause_of(error: OSError | StoreError) -> OSError:
    """Return the system's error that a store's error was raised for; one without a number if there is none."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) else OSError()


class StoreInUse(StoreError):
    """Another process, or this one, has `path` open. Stop that broker, or use another directory."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is open in another broker: stop that broker, or use another directory"
        )
        self.path = path


class ForeignStore(StoreError):
    """`path` is not one store of ours. Nothing in it was touched."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} cannot be used by a broker: {what}; use an empty directory")
        self.path, self.what = path, what


class NewerFormat(StoreError):
    """`what` has format `version`; this release knows up to `known`. Nothing was touched; use a later
    release."""

    def __init__(self, what: str, version: int, known: int) -> None:
        super().__init__(
            f"{what} has format version {version}, this release knows up to {known}: "
            "use the release that wrote it"
        )
        self.what, self.version, self.known = what, version, known


class StoreKeyMissing(StoreError):
    """The store needs a key that is not held; `what` says which, and why. Nothing was touched."""

    def __init__(self, what: str) -> None:
        super().__init__(f"no key: {what}")
        self.what = what


class StoreKeyWrong(StoreError):
    """The data key of the store in `path` is wrapped for the key ids `wanted`; the keys held are `held`.

    Nothing was touched. The ids are those that `mesh keys show` prints: use the keys of that cluster, or
    the generation that has been dropped.
    """

    def __init__(self, path: str, cluster: str, wanted: Iterable[str], held: Iterable[str]) -> None:
        self.path, self.cluster = path, cluster
        self.wanted, self.held = tuple(wanted), tuple(held)
        super().__init__(
            f"{path} is encrypted for keys {', '.join(self.wanted)} of cluster {cluster!r}; "
            f"the keys given are {', '.join(self.held) or 'none'}: use the keys it was written with"
        )


class StoreFull(StoreError):
    """There is no room for `needed_bytes`: the next segment of `segment_bytes` cannot be allocated.

    Nothing was stored. `free_bytes` were free in the file system, of which `kept_bytes` are reserved for
    others. Acks are still accepted; publishing resumes by itself when there is space.
    """

    def __init__(
        self, needed_bytes: int, segment_bytes: int, free_bytes: int, kept_bytes: int = 0
    ) -> None:
        # Named as the setting (for Python programs) and as the command's option.
        kept = (
            f" besides {kept_bytes} that must stay free (free_bytes_min, --free-min)"
            if kept_bytes
            else ""
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
        super().__init__(f"{needed_bytes} bytes have to wait: {reason}")
        self.needed_bytes, self.reason = needed_bytes, reason


class StoreFailed(StoreError):
    """The disk failed: `reason`. Whatever was not confirmed before may be stored or not, and stays unknown.

    A failed fdatasync is not retried: the kernel may have dropped the pages that it could not write, and
    report success the second time. Check the disk, then restart the broker; it recovers what is there.

    Args:
        store_continues: only a vhost could not be made or deleted; the store continues.
    """

    def __init__(self, reason: str, store_continues: bool = False) -> None:
        super().__init__(
            f"{reason}: check the disk" if store_continues
            else f"the store has stopped: {reason}: check the disk, then restart the broker"
        )  # fmt: skip
        self.reason = reason


class StoreClosed(StoreError):
    """The store has been closed; whether the records that were not durable by then are stored is unknown."""


class NotInLog(StoreError):
    """There is no record at log position `position`; the log holds positions in [`start`, `end`)."""

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
