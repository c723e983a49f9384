"""The checkpoint files of a store: written all at once, read one by one, and needed only where an `ack`, or
the copy of it in `enq`, is all that is left of what was settled.

    queues/<SHA-1 of the name>/enq and ack     what records before a log position did to a queue
    checkpoint                                 where the last snapshot stands, and where to read from

A file is written beside the old one, synced, renamed, and its directory is synced. After a kill there is
the old pair of a queue, or the new one, of which a file may not be renamed yet. A power cut may leave a
mixture, which is noticed and counts as none, but each `ack` by itself says what is settled. An `enq` with a
copy of its `ack` is a pair by itself, where there is no better one. Everything here blocks: it is for worker
threads, one at a time.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from .checkpoint import (
    NO_DIGEST,
    CheckpointFile,
    FileKind,
    Unusable,
    decode_checkpoint,
    directory_name,
    encode_checkpoint,
    joined,
    parted,
)
from .checksum import crc32
from .cipher import Cipher
from .disk import NEW, Directory
from .record import Buffer

logger = logging.getLogger("durable.log")
FOLDER_NAME, ROOT_NAME = "queues", "checkpoint"
NOWHERE = 1 << 64
"""Where a log ends that has not been read yet: nothing is ahead of it."""
DIGEST = re.compile("[0-9a-f]{40}")
KINDS = {"enq": FileKind.ENQ, "ack": FileKind.ACK}
HALF_RENAMED = (("enq", "ack" + NEW), ("enq" + NEW, "ack"))
"""What a kill between the two renames leaves, and a power cut that kept one of them. Both were synced before."""
OURS = frozenset(name + ending for name in KINDS for ending in ("", NEW))
"""In the directory of a queue."""
ASIDE = ".aside"
"""Ending of directories of others that stood where one of our files has to be."""


class Checkpoint(NamedTuple):
    """Of one queue: what all records before `position` did."""

    name: str
    lane: int
    """A lane id of the queue: one that is deleted and declared anew is another one."""
    position: int
    enq: Buffer
    ack: Buffer
    twice: bool = False
    """Whether `ack` is to stand in both files: no snapshot says all of it."""


class Root(NamedTuple):
    """Of the store."""

    snapshot: int
    """Log position of the last durable snapshot."""
    start: int
    """Log position from which records have to be read."""
    extra: Buffer
    marks: Buffer = b""
    """Where in its segment that stands, and what is before it there, as `Marks.encode` has it."""


def go_on() -> None:
    """Nothing is to stop this."""


class Checkpoints:
    """Of one store.

    Args:
        disk: the directory of the log.
        end: says where the durable log ends. Whoever opens a store looks at all checkpoints before
            anything is appended: one that is ahead of the log is removed then, for the log may have
            got there again, with other records, by the next time.
        cipher: of the store. None: what is encrypted counts as none, and nothing new is.
    """

    def __init__(
        self, disk: Directory, store_id: bytes, end: Callable[[], int],
        cipher: Cipher | None = None,
    ) -> None:  # fmt: skip
        self._disk, self._store_id, self._end = disk, store_id, end
        self._cipher = cipher
        self._folder = disk.directory(FOLDER_NAME)
        self.unusable: Counter[Unusable] = Counter()
        """How many files were as good as none, by reason."""
        self.reach = 0
        """The log ended here, or later, when what has been read so far was written."""
        self._strange: set[str] = set()
        """What stays for not being ours, or for what else is in it: said once."""

    def write_all(
        self, checkpoints: Iterable[Checkpoint], between: Callable[[], object] = go_on
    ) -> None:
        """Durable, all of them, when it returns; each in place of the one before it.

        Every file and every directory is synced once, and no file waits for another one's sync to
        be written, so the file system can put many into one transaction.

        Args:
            checkpoints: taken one by one; their payloads are not kept.
            between: called between files. What it raises ends this: some are new then, some old.
        Raises:
            OSError: the disk is full, or failed. As before.
        """
        if FOLDER_NAME not in self._disk.names():
            self._disk.make_directory(FOLDER_NAME)
        names = set(self._folder.names())
        digests: list[str] = []
        for one in checkpoints:
            digest = directory_name(one.name)
            if digest not in names:
                self._folder.make_directory(digest)
                names.add(digest)
            self._write_new(digest, one, between)
            digests.append(digest)
        folders = [self._folder.directory(digest) for digest in digests]
        for folder in folders:
            for name in KINDS:
                between()
                _sync(folder, name + NEW)
        for folder in folders:
            between()
            for name in KINDS:
                _replace(folder, name)
        for folder in folders:
            between()
            folder.sync_directory()
        self._folder.sync_directory()
        self._disk.sync_directory()

    def _write_new(self, digest: str, one: Checkpoint, between: Callable[[], object]) -> None:
        assert one.position <= self._end(), "of what is durable"
        folder, pair = self._folder.directory(digest), 0
        enq = joined(one.enq, one.ack) if one.twice else one.enq
        for (name, kind), payload in zip(KINDS.items(), (enq, one.ack), strict=True):
            between()
            file = self._encrypted(CheckpointFile(
                kind, self._store_id, bytes.fromhex(digest), 0, one.position, one.lane, payload,
                with_ack=one.twice and kind is FileKind.ENQ,
            ))  # fmt: skip
            if kind is FileKind.ENQ:
                pair = crc32(file.payload)
            _write(folder, name + NEW, file._replace(pair=pair))

    def read(self, name: str, lane: int) -> Checkpoint | None:
        """The checkpoint of this queue; None when there is none that can be used."""
        found = self._pair(name, lane, "enq", "ack")
        if isinstance(found, Checkpoint):
            return found
        for enq, ack in HALF_RENAMED:
            half = self._pair(name, lane, enq, ack)
            if isinstance(half, Checkpoint):
                return half
        digest = directory_name(name)
        folder, why = self._folder.directory(digest), found[1]
        self._count(folder, *found)
        if why is Unusable.UNREADABLE:  # Now; it may be good: see `acks`.
            return None
        file = self._usable(folder, "enq", FileKind.ENQ, digest)
        if isinstance(file, Unusable) or file.lane != lane or not file.with_ack:
            return None
        self._tell(folder, why)
        return Checkpoint(name, lane, file.position, *parted(file.payload), twice=True)

    def _tell(self, folder: Directory, why: Unusable) -> None:
        logger.warning("%s/ack: %s; the copy of it in enq is read", folder.path, why.value)

    def _pair(self, name: str, lane: int, enq: str, ack: str) -> Checkpoint | tuple[str, Unusable]:
        """What these two files hold; or which one is as good as none, and why."""
        digest = directory_name(name)
        files: list[CheckpointFile] = []
        for one, kind in ((enq, FileKind.ENQ), (ack, FileKind.ACK)):
            file = self._usable(self._folder.directory(digest), one, kind, digest)
            if isinstance(file, CheckpointFile) and file.lane != lane:
                file = Unusable.OTHER
            if isinstance(file, Unusable):
                return one, file
            files.append(file)
        first, second = files
        if (first.position, first.pair) != (second.position, second.pair):
            return ack, Unusable.MIXED
        enqueued = parted(first.payload)[0] if first.with_ack else first.payload
        return Checkpoint(
            name, lane, first.position, enqueued, second.payload, twice=first.with_ack
        )

    def acks(self, besides: Iterable[str] | None = None) -> Iterator[Buffer]:
        """What each `ack` file holds, or the copy in its `enq`, of whatever queues there are or were, but for these.

        That needs no pair and no root, so a kill between two renames takes nothing of it: what
        was settled before such a file was written stays settled. What is ahead of the log is removed.

        Args:
            besides: what these hold is known, and so is all that is settled. None: nothing is.
        Raises:
            OSError: nothing is known, and one cannot be read, now. Were it taken for none, what nothing else
                says would come back.
        """
        known = {directory_name(name) for name in besides or ()}
        read = self._found if besides is None else self._usable
        try:
            digests = [digest for digest in self.digests() if digest not in known]
        except OSError:
            if besides is None:
                raise
            self.unusable[Unusable.UNREADABLE] += 1
            return
        for digest in digests:
            folder = self._folder.directory(digest)
            ack = read(folder, "ack", FileKind.ACK, digest)
            # Also where it is not needed: ahead of the log, it would be a pair by itself one day.
            from_enq = self._usable if isinstance(ack, CheckpointFile) else read
            enq = from_enq(folder, "enq", FileKind.ENQ, digest)
            if enq is Unusable.AHEAD:
                self._count(folder, "enq", enq)
            if isinstance(ack, CheckpointFile):
                yield ack.payload
                continue
            self._count(folder, "ack", ack)
            if isinstance(enq, CheckpointFile) and enq.with_ack:
                self._tell(folder, ack)
                yield parted(enq.payload)[1]

    def remove_unfinished(self) -> None:
        """What is not renamed yet; without it no file goes with one of another time. Durable when it returns."""
        for digest in self.digests():
            folder = self._folder.directory(digest)
            with suppress(FileNotFoundError, NotADirectoryError):
                for name in {one + NEW for one in KINDS}.intersection(folder.names()):
                    with suppress(IsADirectoryError):
                        folder.unlink(name)
                folder.sync_directory()

    def remove_others(self, names: Iterable[str], between: Callable[[], object] = go_on) -> int:
        """Remove what belongs to none of these queues, durable when it returns; how many there were. `between` is called
        as by `write_all`."""
        kept = {directory_name(name) for name in names}
        others = [digest for digest in self.digests() if digest not in kept]
        for digest in others:
            between()
            self._remove(digest)
        return len(others)

    def _remove(self, digest: str) -> None:
        """What is ours; with it the directory, unless somebody else has put something there."""
        folder = self._folder.directory(digest)
        with suppress(FileNotFoundError):
            try:
                names = folder.names()
            except NotADirectoryError:
                self._keep(digest, "it is no directory, so it is not ours")
                return
            for name in OURS.intersection(names):
                with suppress(IsADirectoryError):
                    folder.unlink(name)
            others = folder.names()
            if others:
                folder.sync_directory()
                self._keep(digest, f"it holds {', '.join(others)}, which is not ours")
            else:
                self._folder.remove_directory(digest)
                self._folder.sync_directory()

    def _keep(self, digest: str, why: str) -> None:
        if digest not in self._strange:
            logger.warning("%s is kept: %s", self._folder.directory(digest).path, why)
        self._strange.add(digest)

    def digests(self) -> list[str]:
        """SHA-1 in hex of the names of all queues that have files here; anything else is not ours."""
        try:
            return list(filter(DIGEST.fullmatch, self._folder.names()))
        except FileNotFoundError:
            return []

    def absent(self, names: Iterable[str]) -> Iterator[str]:
        """Paths of files that these queues ought to have."""
        for digest in map(directory_name, names):
            there: list[str] = []
            with suppress(FileNotFoundError, NotADirectoryError):
                there = self._folder.directory(digest).names()
            yield from (f"{FOLDER_NAME}/{digest}/{kind}" for kind in KINDS if kind not in there)

    def make_room(self, extra: Buffer, marks: Buffer) -> None:
        """For a root that says this: on a full disk `write_root` finds it."""
        self._write_new_root(Root(0, 0, extra, marks))

    def write_root(self, root: Root, between: Callable[[], object] = go_on) -> None:
        """Durable when it returns; the snapshot it names has to be so before. What `between` raises leaves the one
        that was there."""
        assert root.snapshot < self._end(), "a snapshot that is durable"
        self._write_new_root(root)
        _sync(self._disk, ROOT_NAME + NEW)
        between()
        _replace(self._disk, ROOT_NAME)
        self._disk.sync_directory()

    def _write_new_root(self, root: Root) -> None:
        snapshot, start, extra, marks = root
        file = CheckpointFile(
            FileKind.ROOT, self._store_id, NO_DIGEST, len(marks), snapshot, start,
            b"".join((marks, extra)),
        )  # fmt: skip
        _write(self._disk, ROOT_NAME + NEW, self._encrypted(file))

    def drop_root(self, start: int) -> None:
        """Unless it needs nothing before log position `start`. Durable when it returns, and takes no
        space: records before may go then, and the log is read from what is its front."""
        root = self.read_root()
        if (root is None or root.start < start) and ROOT_NAME in self._disk.names():
            with suppress(IsADirectoryError):  # Of others: it is no root.
                self._disk.unlink(ROOT_NAME)
            self._disk.sync_directory()

    def read_root(self) -> Root | None:
        """None: read the log from the front."""
        file = self._usable(self._disk, ROOT_NAME, FileKind.ROOT, NO_DIGEST.hex())
        if isinstance(file, Unusable):
            self._count(self._disk, ROOT_NAME, file)
            return None
        payload, marks_bytes = file.payload, file.pair  # See checkpoint.py.
        return Root(file.position, file.lane, payload[marks_bytes:], payload[:marks_bytes])

    def kept(self, root: Root | None) -> range:
        """Log positions that were durable when what has been read so far was written. From the root's start
        on nothing has been freed since: that takes a later root. Without one it is known only how far
        they went; with nothing else left, all of it counts as lost."""
        return range(self.reach if root is None else root.start, self.reach)

    def _usable(
        self, folder: Directory, name: str, kind: FileKind, digest: str
    ) -> CheckpointFile | Unusable:
        """Of a file that can be done without: one that cannot be read is none."""
        try:
            return self._found(folder, name, kind, digest)
        except OSError:
            return Unusable.UNREADABLE

    def _found(
        self, folder: Directory, name: str, kind: FileKind, digest: str
    ) -> CheckpointFile | Unusable:
        """Raises OSError: it cannot be read. What is no file is not ours, and none."""
        try:
            with closing(folder.open(name)) as opened:
                file = decode_checkpoint(opened.pread(opened.size_bytes, 0))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return Unusable.MISSING
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{folder.path}/{name}") from error
        if isinstance(file, Unusable):
            return file
        if file.store_id != self._store_id:
            return Unusable.FOREIGN
        if (file.kind, file.digest.hex()) != (kind, digest):
            return Unusable.OTHER
        reach = file.position + (kind is FileKind.ROOT)  # The snapshot itself is in the log, too.
        if reach > self._end():
            return Unusable.AHEAD
        self.reach = max(self.reach, reach)
        return self._decrypted(file)

    def _encrypted(self, file: CheckpointFile) -> CheckpointFile:
        """As it is to be written. The root, as long as there is a data key: without that it is none, so
        all of the log is read, and what is encrypted is met."""
        if self._cipher is None or not (self._cipher.encrypting or file.kind is FileKind.ROOT):
            return file
        payload = self._cipher.encrypt_bytes(bytes(file.payload), file.made_for)
        return file._replace(payload=payload, encrypted=True)

    def _decrypted(self, file: CheckpointFile) -> CheckpointFile | Unusable:
        if not file.encrypted:
            return file
        plain = None
        if self._cipher is not None:
            plain = self._cipher.decrypt_bytes(bytes(file.payload), file.made_for)
        return Unusable.ENCRYPTED if plain is None else file._replace(payload=plain)

    def _count(self, folder: Directory, name: str, why: Unusable) -> None:
        self.unusable[why] += 1
        if why is Unusable.AHEAD:
            folder.unlink(name)
            folder.sync_directory()


def _write(folder: Directory, name: str, file: CheckpointFile) -> None:
    pieces = encode_checkpoint(file)
    size_bytes = sum(map(len, pieces))
    try:
        opened = folder.create(name)
    except FileExistsError:  # Of an attempt that came to nothing; and on a full disk it has room.
        try:
            opened = folder.open(name)
        except IsADirectoryError:
            _put_aside(folder, name)
            opened = folder.create(name)
    with closing(opened):
        if opened.size_bytes > size_bytes:
            opened.truncate(size_bytes)
        opened.pwritev(pieces, 0)


def _replace(folder: Directory, name: str) -> None:
    """By the new one."""
    try:
        folder.rename(name + NEW, name)
    except IsADirectoryError:
        _put_aside(folder, name)
        folder.rename(name + NEW, name)


def _put_aside(folder: Directory, name: str) -> None:
    """A directory, which is not ours."""
    folder.rename(name, name + ASIDE)
    logger.warning("%s/%s is now %s%s: it is not ours", folder.path, name, name, ASIDE)


def _sync(folder: Directory, name: str) -> None:
    with closing(folder.open(name)) as opened:
        opened.fdatasync()
