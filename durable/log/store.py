"""One open directory: everything about it that blocks. The shell calls it from worker threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock

from ..errors import StoreFailed, StoreFull
from .committing import Commit, Committer, Write
from .config import LogConfig
from .disk import NO_SPACE, Disk, File
from .encryption import Encryption
from .header import segment_name
from .placing import Cursor
from .reader import Reader
from .record import store_seed
from .recovery import Begin, Recovered, Visit, recover


class Store:
    """The files of a log. At most one thread commits; any may read."""

    def __init__(self, disk: Disk, config: LogConfig, recovered: Recovered) -> None:
        self._disk, self._config = disk, config
        self._files: dict[int, File] = {}
        self.in_place = False
        """Whether the next segment takes the place of one that was removed, or may have been."""
        self._opening = Lock()
        """Held to open a file and to remove one: what is removed must not stay open, and take space."""
        self.path = disk.path
        self.report = report = recovered.report
        self.segments = recovered.segments
        self.committer = Committer(
            config, self.segments, recovered.cursor, store_id=report.store_id, epoch=report.epoch,
            chain=recovered.chain, ahead_ready=recovered.ahead_ready, cipher=recovered.cipher,
        )  # fmt: skip
        self.cipher = recovered.cipher
        """None: nothing in this store is encrypted."""
        self.reader = Reader(
            self.segments, store_seed(report.store_id), self._file, recovered.decrypt
        )

    def carry_out(self, commit: Commit) -> None:
        """Take the steps of a commit.

        Raises:
            StoreFull: no space to write; nothing is lost, the same commit can be carried out later.
            OSError: the disk failed. Whatever it was, this store must not sync again.
        """
        for step in commit.steps:
            file = self._file(step.number)
            if not isinstance(step, Write):
                file.fdatasync()
                continue
            try:
                file.pwritev(step.pieces, step.at)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                raise self._full(commit.size_bytes) from error

    def open_written(self, cursor: Cursor, *, ahead_ready: bool) -> None:
        """The files that will be written next: later there may be no descriptor left for them, and a
        commit that fails has failed for good."""
        if not cursor.sealed:
            self._file(cursor.number)
        if ahead_ready:
            self._file(cursor.number + 1)

    def make_segment(self, number: int) -> None:
        """A file for segment `number`: allocated, zeros, and there after a power cut.

        In place of one that was removed it leaves others what they had before: were it refused, the
        snapshot that freed that one would have used up what is kept for it, and no other would fit.

        Raises:
            StoreFull: not enough space; nothing is left of the attempt.
            OSError: the disk failed.
        """
        size = self._config.segment_bytes
        left = 0 if self.in_place else self._config.free_bytes_min
        if self._disk.free_bytes() < size + left:
            raise self._full(size)
        try:
            self._files[number] = self._allocated(segment_name(number))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise self._full(size) from error
        self.in_place = False

    def _allocated(self, name: str) -> File:
        file = self._disk.create(name)
        try:
            file.preallocate(self._config.segment_bytes)
            file.fdatasync()
            self._disk.sync_directory()
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(name)
            raise
        return file

    def remove(self, numbers: Iterable[int]) -> None:
        """Free these segments. Whoever is reading one goes on doing so."""
        for number in numbers:
            with self._opening:
                self._files.pop(number, None)
                with suppress(FileNotFoundError):  # An attempt before this one got so far.
                    self._disk.unlink(segment_name(number))
        self._disk.sync_directory()
        self.in_place = True

    def close(self) -> None:
        """Let others in. Nobody may be reading or writing."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._disk.close()

    def _file(self, number: int) -> File:
        file = self._files.get(number)
        if file is None:
            with self._opening:
                file = self._files.get(number)
                if file is None:
                    file = self._files[number] = self._disk.open(segment_name(number))
        return file

    def _full(self, needed_bytes: int) -> StoreFull:
        return StoreFull(needed_bytes, self._config.segment_bytes, self._disk.free_bytes())


def open_store(
    disk: Disk, config: LogConfig, *, new_store_id: bytes, now_us: int, clock: Callable[[], float],
    start: int | Begin = 0, visit: Visit | None = None, encryption: Encryption | None = None,
) -> Store:  # fmt: skip
    """Lock the directory, recover what is there, and make it ready to be written.

    Raises:
        StoreInUse, ForeignStore, NewerFormat: this directory is not to be opened.
        StoreKeyMissing, StoreKeyWrong: it is encrypted, and not for the keys there are.
        StoreFailed: the disk failed while it was being opened.
    """
    disk.lock()
    try:
        recovered = recover(
            disk, config, new_store_id=new_store_id, now_us=now_us, clock=clock, start=start,
            visit=visit, encryption=encryption,
        )  # fmt: skip
        store = Store(disk, config, recovered)
        store.open_written(recovered.cursor, ahead_ready=recovered.ahead_ready)
    except OSError as error:
        disk.close()
        advice = "`mesh-broker salvage` copies what can be read"
        if error.errno in NO_SPACE:
            advice = "free some space, then start again"
        raise StoreFailed(f"{disk.path} cannot be opened: {error}; {advice}") from error
    except BaseException:
        disk.close()
        raise
    return store
