"""The checkpoint files of a store. All are written together and read one by one. Recovery can do without them, unless
an `ack`, or the copy of it in `enq`, is the only thing left that says what was settled.

    queues/<SHA-1 of the name>/enq and ack     effects on a queue of all records before a log position
    checkpoint                                 where the last snapshot is, and from where to read

A file is written beside the old one and synced, then renamed, and its directory is synced. After a kill a queue has
its old pair of files, or the new pair, of which one or both may not be renamed yet. A power cut may leave a mixture,
which is detected and treated as missing; but each `ack` alone still says what is settled. An `enq` with a copy of its
`ack` can serve as a pair alone, if there is no better one. Everything here blocks: it is called in worker threads,
one at a time.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from .check import Check, never_stop
from .checkpoint import (
    NO_DIGEST,
    CheckpointFile,
    FileKind,
    Unusable,
    decode_checkpoint,
    directory_name,
    encode_checkpoint,
    join_ack,
    split_ack,
)
from .checksum import crc32
from .cipher import Cipher
from .disk import NEW, Directory
from .new_versions import make_way, replace, sync_new, write_new
from .record import Buffer

logger = logging.getLogger("durable.log")
FOLDER_NAME, ROOT_NAME = "queues", "checkpoint"
END_UNKNOWN = 1 << 64
"""End of a log that has not been read yet: no checkpoint counts as ahead of it."""
DIGEST = re.compile("[0-9a-f]{40}")
KINDS = {"enq": FileKind.ENQ, "ack": FileKind.ACK}
HALF_RENAMED = (("enq", "ack" + NEW), ("enq" + NEW, "ack"))
"""What is left by a kill between the two renames, or by a power cut that kept one of them. Both files were synced."""
OURS = frozenset(name + ending for name in KINDS for ending in ("", NEW))
"""Names of our files in a queue's directory."""


class Checkpoint(NamedTuple):
    """The checkpoint of one queue: the effects of all records before `position`."""

    name: str
    lane: int
    """A lane id of the queue. A queue that was deleted and declared again has another one."""
    position: int
    enq: Buffer
    ack: Buffer
    ack_copied: bool = False
    """Whether `ack` is to be in both files, because no snapshot has all that it says."""


class Root(NamedTuple):
    """The checkpoint of the store."""

    snapshot: int
    """Log position of the last durable snapshot."""
    start: int
    """Log position from which records have to be read."""
    extra: Buffer
    marks: Buffer = b""
    """Marks of the segment with `start`, up to that log position, from `Marks.encode`."""


class Checkpoints:
    """The checkpoint files of one store.

    Args:
        disk: the directory of the log.
        end: returns where the durable log ends. Whoever opens a store looks at all checkpoints before anything is
            appended: one that is ahead of the log is removed then, because by the next time the log may have
            reached it again, with other records.
        cipher: of the store. None: encrypted files are treated as missing, and new ones are not encrypted.
    """

    def __init__(
        self, disk: Directory, store_id: bytes, end: Callable[[], int],
        cipher: Cipher | None = None,
    ) -> None:  # fmt: skip
        self._disk, self._store_id, self._end = disk, store_id, end
        self._cipher = cipher
        self._folder = disk.directory(FOLDER_NAME)
        self.unusable: Counter[Unusable] = Counter()
        """Number of files treated as missing, by reason."""
        self.log_end_min = 0
        """When the files read so far were written, the log ended here or later."""
        self._foreign: set[str] = set()
        """Directories kept because they, or other things in them, are not ours: each is logged once."""

    def write_all(self, checkpoints: Iterable[Checkpoint], check: Check = never_stop) -> None:
        """Write the checkpoints of these queues, each replacing the one before; all are durable on return.

        Every file and every directory is synced once, and all files are written before the first is synced, so
        that the file system can put many into one transaction.

        Args:
            checkpoints: taken one by one; their payloads are not kept.
            check: called between files. What it raises ends this call: some files are new then, some old.
        Raises:
            OSError: the disk is full, or failed. Here, too, some files may be new.
        """
        names = self._make_folder()
        digests: list[str] = []
        for one in checkpoints:
            digest = directory_name(one.name)
            if digest not in names:
                self._folder.make_directory(digest)
                names.add(digest)
            try:
                self._write_new(digest, one, check)
            except NotADirectoryError:
                make_way(self._folder, digest)
                self._folder.make_directory(digest)
                self._write_new(digest, one, check)
            digests.append(digest)
        folders = [self._folder.directory(digest) for digest in digests]
        for folder in folders:
            for name in KINDS:
                check()
                sync_new(folder, name)
        for folder in folders:
            check()
            for name in KINDS:
                replace(folder, name)
        for folder in folders:
            check()
            folder.sync_directory()
        self._folder.sync_directory()
        self._disk.sync_directory()

    def _make_folder(self) -> set[str]:
        """Make the directory of all queues if there is none. Return the names in it."""
        if FOLDER_NAME in self._disk.names():
            try:
                return set(self._folder.names())
            except NotADirectoryError:
                make_way(self._disk, FOLDER_NAME)
        self._disk.make_directory(FOLDER_NAME)
        return set()

    def _write_new(self, digest: str, one: Checkpoint, check: Check) -> None:
        assert one.position <= self._end(), "of what is durable"
        folder, pair = self._folder.directory(digest), 0
        enq = join_ack(one.enq, one.ack) if one.ack_copied else one.enq
        for (name, kind), payload in zip(KINDS.items(), (enq, one.ack), strict=True):
            check()
            file = self._encrypted(CheckpointFile(
                kind, self._store_id, bytes.fromhex(digest), 0, one.position, one.lane, payload,
                with_ack=one.ack_copied and kind is FileKind.ENQ,
            ))  # fmt: skip
            if kind is FileKind.ENQ:
                pair = crc32(file.payload)
            write_new(folder, name, encode_checkpoint(file._replace(pair=pair)))

    def read(self, name: str, lane: int) -> Checkpoint | None:
        """Return the checkpoint of this queue; None if no files can be used."""
        found = self._pair(name, lane, "enq", "ack")
        if isinstance(found, Checkpoint):
            return found
        for enq, ack in HALF_RENAMED:
            half = self._pair(name, lane, enq, ack)
            if isinstance(half, Checkpoint):
                return half
        digest = directory_name(name)
        folder, why = self._folder.directory(digest), found[1]
        self._note_unusable(folder, *found)
        if why is Unusable.UNREADABLE:  # It may be intact, and readable later: see `acks`.
            return None
        file = self._load_readable(folder, "enq", FileKind.ENQ, digest)
        if isinstance(file, Unusable) or file.lane != lane or not file.with_ack:
            return None
        self._report_copy_used(folder, why)
        return Checkpoint(name, lane, file.position, *split_ack(file.payload), ack_copied=True)

    def _report_copy_used(self, folder: Directory, why: Unusable) -> None:
        logger.warning("%s/ack: %s; reading its copy in enq instead", folder.path, why.value)

    def _pair(self, name: str, lane: int, enq: str, ack: str) -> Checkpoint | tuple[str, Unusable]:
        """Return what these two files hold; or which of them is treated as missing, and why."""
        digest = directory_name(name)
        files: list[CheckpointFile] = []
        for one, kind in ((enq, FileKind.ENQ), (ack, FileKind.ACK)):
            file = self._load_readable(self._folder.directory(digest), one, kind, digest)
            if isinstance(file, CheckpointFile) and file.lane != lane:
                file = Unusable.OTHER
            if isinstance(file, Unusable):
                return one, file
            files.append(file)
        first, second = files
        if (first.position, first.pair) != (second.position, second.pair):
            return ack, Unusable.MIXED
        enqueued = split_ack(first.payload)[0] if first.with_ack else first.payload
        return Checkpoint(
            name, lane, first.position, enqueued, second.payload, ack_copied=first.with_ack
        )

    def acks(self, known: Iterable[str] | None = None) -> Iterator[Buffer]:
        """Yield the payload of each `ack` file, or of its copy in `enq`, for all queues that there are or were.

        This needs neither pair nor root, so a kill between two renames takes nothing of it: what was settled
        before such a file was written stays settled. Files that are ahead of the log are removed.

        Args:
            known: queues to leave out, because their files are known. All that was settled is known then, so a file
                that cannot be read is treated as missing. None: nothing is known.
        Raises:
            OSError: `known` is None, and a file cannot be read at present. If it were treated as missing,
                messages would come back whose settlement nothing else says.
        """
        known_digests = {directory_name(name) for name in known or ()}
        read = self._load if known is None else self._load_readable
        try:
            digests = [digest for digest in self.digests() if digest not in known_digests]
        except OSError:
            if known is None:
                raise
            self.unusable[Unusable.UNREADABLE] += 1
            return
        for digest in digests:
            folder = self._folder.directory(digest)
            ack = read(folder, "ack", FileKind.ACK, digest)
            # Read also if it is not needed: one that is ahead of the log could later serve as a pair alone.
            from_enq = self._load_readable if isinstance(ack, CheckpointFile) else read
            enq = from_enq(folder, "enq", FileKind.ENQ, digest)
            if enq is Unusable.AHEAD:
                self._note_unusable(folder, "enq", enq)
            if isinstance(ack, CheckpointFile):
                yield ack.payload
                continue
            self._note_unusable(folder, "ack", ack)
            if isinstance(enq, CheckpointFile) and enq.with_ack:
                self._report_copy_used(folder, ack)
                yield split_ack(enq.payload)[1]

    def remove_unfinished(self) -> None:
        """Remove files that were not renamed, so that no file is ever paired with one of another time. Durable on
        return."""
        for digest in self.digests():
            folder = self._folder.directory(digest)
            with suppress(FileNotFoundError, NotADirectoryError):
                for name in {one + NEW for one in KINDS}.intersection(folder.names()):
                    with suppress(IsADirectoryError):
                        folder.unlink(name)
                folder.sync_directory()

    def remove_others(self, names: Iterable[str], check: Check = never_stop) -> int:
        """Remove the files of all other queues, durable on return; return how many queues that were. `check` is
        called as by `write_all`."""
        kept = {directory_name(name) for name in names}
        others = [digest for digest in self.digests() if digest not in kept]
        for digest in others:
            check()
            self._remove(digest)
        return len(others)

    def _remove(self, digest: str) -> None:
        """Remove our files, and then the directory, unless it has something in it that is not ours."""
        folder = self._folder.directory(digest)
        with suppress(FileNotFoundError):
            try:
                names = folder.names()
            except NotADirectoryError:
                self._report_foreign(digest, "it is not a directory, so not of this broker")
                return
            for name in OURS.intersection(names):
                with suppress(IsADirectoryError):
                    folder.unlink(name)
            others = folder.names()
            if others:
                folder.sync_directory()
                self._report_foreign(digest, f"it contains {', '.join(others)}, not of this broker")
            else:
                self._folder.remove_directory(digest)
                self._folder.sync_directory()

    def _report_foreign(self, digest: str, why: str) -> None:
        if digest not in self._foreign:
            logger.warning("%s was not deleted: %s", self._folder.directory(digest).path, why)
        self._foreign.add(digest)

    def digests(self) -> list[str]:
        """Return the SHA-1 in hex of the names of all queues with files here. Other names are not ours."""
        try:
            return list(filter(DIGEST.fullmatch, self._folder.names()))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def missing_paths(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the paths of missing files of these queues, each of which should have all."""
        for digest in map(directory_name, names):
            there: list[str] = []
            with suppress(FileNotFoundError, NotADirectoryError):
                there = self._folder.directory(digest).names()
            yield from (f"{FOLDER_NAME}/{digest}/{kind}" for kind in KINDS if kind not in there)

    def reserve_root(self, extra: Buffer, marks: Buffer) -> None:
        """Write such a root without making it valid: so on a full disk `write_root` has room for it."""
        self._write_new_root(Root(0, 0, extra, marks))

    def write_root(self, root: Root, check: Check = never_stop) -> None:
        """Write the root; durable on return. The snapshot that it names must be durable before. If `check` raises,
        the old root stays."""
        assert root.snapshot < self._end(), "a snapshot that is durable"
        self._write_new_root(root)
        sync_new(self._disk, ROOT_NAME)
        check()
        replace(self._disk, ROOT_NAME)
        self._disk.sync_directory()

    def _write_new_root(self, root: Root) -> None:
        snapshot, start, extra, marks = root
        file = CheckpointFile(
            FileKind.ROOT, self._store_id, NO_DIGEST, len(marks), snapshot, start,
            b"".join((marks, extra)),
        )  # fmt: skip
        write_new(self._disk, ROOT_NAME, encode_checkpoint(self._encrypted(file)))

    def drop_root(self, start: int) -> None:
        """Remove the root if it needs records before log position `start`. Durable on return, and takes no space.
        Those records may be freed then, and the next start reads the log from what its front is then."""
        root = self.read_root()
        if (root is None or root.start < start) and ROOT_NAME in self._disk.names():
            with suppress(IsADirectoryError):  # Not ours, and no root.
                self._disk.unlink(ROOT_NAME)
            self._disk.sync_directory()

    def read_root(self) -> Root | None:
        """Return the root; None: the log has to be read from its front."""
        file = self._load_readable(self._disk, ROOT_NAME, FileKind.ROOT, NO_DIGEST.hex())
        if isinstance(file, Unusable):
            self._note_unusable(self._disk, ROOT_NAME, file)
            return None
        payload, marks_bytes = file.payload, file.pair  # See checkpoint.py.
        return Root(file.position, file.lane, payload[marks_bytes:], payload[:marks_bytes])

    def known_durable(self, root: Root | None) -> range:
        """Return log positions that were durable when the files read so far were written. From the root's start on
        nothing has been freed since, because that takes a later root. Without a root only the end is known, so the
        range is empty: if nothing else is left, everything before counts as lost."""
        return range(self.log_end_min if root is None else root.start, self.log_end_min)

    def _load_readable(
        self, folder: Directory, name: str, kind: FileKind, digest: str
    ) -> CheckpointFile | Unusable:
        """As `_load`, for a file that is not indispensable: if it cannot be read, it is treated as missing."""
        try:
            return self._load(folder, name, kind, digest)
        except OSError:
            return Unusable.UNREADABLE

    def _load(
        self, folder: Directory, name: str, kind: FileKind, digest: str
    ) -> CheckpointFile | Unusable:
        """Return the file, checked and decrypted. Raises OSError if it cannot be read. What is no regular file
        is not ours, and counts as missing."""
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
        log_end = file.position + (kind is FileKind.ROOT)  # The snapshot itself is in the log, too.
        if log_end > self._end():
            return Unusable.AHEAD
        self.log_end_min = max(self.log_end_min, log_end)
        return self._decrypted(file)

    def _encrypted(self, file: CheckpointFile) -> CheckpointFile:
        """Return the file as it is to be written. The root is encrypted whenever there is a data key: without the key
        it then counts as missing, so all of the log is read, and what is encrypted in it is found."""
        if self._cipher is None or not (self._cipher.encrypting or file.kind is FileKind.ROOT):
            return file
        payload = self._cipher.encrypt_bytes(bytes(file.payload), file.associated_data)
        return file._replace(payload=payload, encrypted=True)

    def _decrypted(self, file: CheckpointFile) -> CheckpointFile | Unusable:
        if not file.encrypted:
            return file
        plain = None
        if self._cipher is not None:
            plain = self._cipher.decrypt_bytes(bytes(file.payload), file.associated_data)
        return Unusable.ENCRYPTED if plain is None else file._replace(payload=plain)

    def _note_unusable(self, folder: Directory, name: str, why: Unusable) -> None:
        self.unusable[why] += 1
        if why is Unusable.AHEAD:
            folder.unlink(name)
            folder.sync_directory()
