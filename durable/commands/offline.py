"""Reading a broker's directory without a broker: each vhost's log is replayed into a registry, as at a start.

Not a byte of the directory is changed, see log/read_only_disk.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mesh.commands.terminal import print_stderr
from security.keyring import Keyring

from ..broker.checkpoints import load_checkpoints
from ..broker.directory import DEFAULT_VHOST, LOG_FOLDER, NAME_FILE, is_deleted, is_vhost
from ..config import BrokerConfig
from ..definition_checks import NAME_BYTES_MAX
from ..definition_forms import to_plain
from ..definitions import QueueDefinition
from ..errors import DurableError, RecordDamaged, StoreFailed, StoreInUse, UnknownVhost
from ..log.bodies import decode_definitions, decode_moved
from ..log.checkpoint import directory_name
from ..log.checkpoints import Checkpoints
from ..log.cipher import Cipher
from ..log.config import LogConfig
from ..log.disk import Disk, read_front
from ..log.encryption import Encryption, is_encrypted
from ..log.read_only_disk import ReadOnlyDirectory, ReadOnlyDisk
from ..log.record import Draft, Kind, Record
from ..log.recovery import StartPoint
from ..log.report import RecoveryReport
from ..log.segments import Tally
from ..log.series import one_by_one
from ..log.store import open_store
from ..vhost import changes
from ..vhost.checkpointing import decode_extra, settle_ack
from ..vhost.publishers import Publishers
from ..vhost.registry import Registry
from ..vhost.replay import Replay

LoadKeyring = Callable[[], Keyring | None]
"""Called only if something is encrypted, so that everything else can be read without keys."""

ADOPTED_PREFIX = "salvaged."
"""Queues for lanes whose declaration is lost are named with this prefix and the lane's number."""

ATTEMPTS = 10
"""Attempts at reading a log while its broker frees segments."""


class VhostPlace(NamedTuple):
    """Where a vhost is on the disk."""

    name: str
    log: Path
    named: bool
    """Whether its name could be read; otherwise `name` is made up."""


def find_vhosts(data: Path, vhost: str | None = None) -> list[VhostPlace]:
    """Return all vhosts in a broker's directory, or only the given one.

    Raises:
        DurableError: this is not a broker's directory.
        UnknownVhost: there is no such vhost.
    """
    base = data / "vhosts"
    if not data.is_dir():
        raise DurableError(f"{data}: no such directory")
    if not base.is_dir():
        raise DurableError(f"{data} is not a broker's directory: there is no {base}")
    found = sorted(_vhost_place(path) for path in base.iterdir() if is_vhost(path))
    if not found:
        raise DurableError(f"{data} is not a broker's directory: {base} contains no vhost")
    if vhost is None:
        return found
    chosen = [one for one in found if one.name == vhost]
    if not chosen:
        names = [one.name for one in found]
        raise UnknownVhost(vhost, names, hint=f"existing vhosts: {', '.join(names)}")
    return chosen


def _vhost_place(path: Path) -> VhostPlace:
    try:
        name = read_front(ReadOnlyDirectory(path), NAME_FILE, NAME_BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError):
        name = ""
    for known in (name, DEFAULT_VHOST):
        if directory_name(known) == path.name:
            return VhostPlace(known, path / LOG_FOLDER, named=known == name)
    return VhostPlace(f"vhost-{path.name[:8]}", path / LOG_FOLDER, named=False)


class VhostGone(DurableError):
    """The vhost was deleted while it was being read, with --unlocked."""


class KindCount:
    """Number and total size of the records of one kind."""

    def __init__(self) -> None:
        self.records = self.size_bytes = 0


class OfflineVhost:
    """The state of one vhost according to its log. Raises as `open_store`; close it by `store.close()`."""

    def __init__(self, disk: ReadOnlyDisk, encryption: Encryption) -> None:
        self.replay = _new_replay()
        self.registry, self.publishers = self.replay.registry, self.replay.publishers
        self.kinds: dict[int, KindCount] = {}
        self.epochs: dict[int, int] = {}
        """The first log position of each epoch."""
        self.recalled: dict[int, list[tuple[int, int]]] = {}
        """By lane, sequences whose settlement only checkpoint files know, because its records have been freed."""
        self.moved: list[tuple[int, int]] = []
        """For each record carried forward by compaction: the log position that it had first, and its own."""
        self.absent: list[str] = []
        """Checkpoint files that the root names, but that do not exist."""
        self.undecrypted = 0
        """How many records were taken undecrypted because there is no key."""
        self._as_written = encryption.as_written
        self._declared: set[int] = set()
        """Lanes of all queues and streams that were ever declared."""
        self._loaded, self._start = _new_replay(), 0
        self.store = open_store(
            disk, LogConfig(), new_store_id=bytes(16), now_us=0, clock=time.perf_counter,
            start=partial(self._begin, disk), visit=one_by_one(self._visit),
            encryption=encryption,
        )  # fmt: skip
        self.store.report = self.report.with_lost(self._loaded.missing(self.report))

    def _begin(self, disk: ReadOnlyDisk, store_id: bytes, cipher: Cipher | None) -> StartPoint:
        """Begin at the front of the log. What a broker would load from checkpoints is loaded beside it, into `_loaded`,
        to find out whether anything that they need is missing."""
        begin = load_checkpoints(disk, store_id, cipher, self._loaded, end=None)
        self._start = begin.start
        return StartPoint(0, begin.known_durable)

    def _visit(self, record: Record) -> None:
        header = record.header
        kind = self.kinds.get(header.kind)
        if kind is None:
            kind = self.kinds[header.kind] = KindCount()
        kind.records += 1
        kind.size_bytes += header.total_bytes
        if header.epoch not in self.epochs:
            self.epochs[header.epoch] = header.position
        if self._as_written:  # Readable records make no sense without the encrypted ones.
            self.undecrypted += header.encrypted
            return
        if header.kind == Kind.DEFINITIONS:
            self._note_lanes(record)
        if header.kind == Kind.MOVED:
            with suppress(RecordDamaged):
                self.moved.append((decode_moved(record).position, header.position))
        self.replay(record)
        if 0 < self._start <= record.position:
            self._loaded(record)

    def _note_lanes(self, record: Record) -> None:
        with suppress(RecordDamaged, LookupError, TypeError):
            for change in decode_definitions(record):
                if change[0] == changes.QUEUE:
                    self._declared.update(change[1])
                elif change[0] == changes.STREAM:
                    self._declared.add(change[1])

    def adopt(self) -> None:
        """Declare a queue for each lane whose declaration is lost. To be called before `finish`."""
        for lane in sorted(self.registry.lanes.keys() - self._declared):
            definition = QueueDefinition(name=f"{ADOPTED_PREFIX}{lane}")
            self.registry.apply([changes.QUEUE, [lane], to_plain(definition)])

    def recall(self, disk: Disk) -> None:
        """Take over settlements that only checkpoint files have. To be called before `finish`."""
        files = Checkpoints(
            disk, self.report.store_id, lambda: self.report.found_end, self.store.cipher
        )
        for ack in files.acks():
            with suppress(ValueError, TypeError, KeyError):  # A start does without it, too.
                self.recalled |= settle_ack(self.registry, ack)
        if (root := files.read_root()) is not None:
            with suppress(ValueError, TypeError):
                named = decode_extra(root.extra)
                self.absent = [*files.missing_paths(one.name for one in named)]

    @property
    def report(self) -> RecoveryReport:
        return self.store.report

    @property
    def end(self) -> int:
        """The log position after the last record."""
        return self.report.end

    def records(self) -> Iterator[Record]:
        """Yield all records that can be read, in order."""
        return self.store.reader.records(0, self.end)


def _new_replay() -> Replay:
    return Replay(Registry(), Publishers(BrokerConfig().publishers_max))


class _NoStore:
    """Stands in for the log of a vhost to which nothing is written and of which nothing is freed."""

    end = durable_end = append_bytes_max = reserve_bytes = 0

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        raise AssertionError("nothing is appended to what is only looked at")

    def tally(self) -> Tally:
        raise AssertionError("nothing waits for room in what is only looked at")

    def hurry(self) -> None: ...
    def refer(self, position: int, count: int, size_bytes: int) -> None: ...
    def release(self, position: int, count: int, size_bytes: int) -> None: ...
    def refer_each(self, positions: range, size_bytes: int) -> None: ...
    def release_each(self, positions: range, size_bytes: int) -> None: ...
    def in_same_segment(self, low: int, high: int) -> bool:
        return True


def each_offline(
    found: Sequence[VhostPlace], load_keyring: LoadKeyring, **options: bool
) -> Iterator[tuple[VhostPlace, OfflineVhost]]:
    """Open each as `open_offline` does; a vhost that its broker deletes meanwhile is reported and left out."""
    for place in found:
        try:
            with open_offline(place, load_keyring, **options) as offline:
                yield place, offline
        except VhostGone as error:
            print_stderr(str(error))


@contextmanager
def open_offline(
    place: VhostPlace, load_keyring: LoadKeyring, *, unlocked: bool = False, adopt_lanes: bool = False,
    allow_undecrypted: bool = False,
) -> Iterator[OfflineVhost]:  # fmt: skip
    """Read a vhost's log. No broker can open it during the block.

    Args:
        unlocked: read it even if a broker has it open; what that is writing may look damaged.
        adopt_lanes: if log positions are lost, make a queue for each lane without a declaration.
        allow_undecrypted: if it is encrypted and there are no keys at all, read it undecrypted.
    Raises:
        DurableError: a broker has it open.
        VhostGone: it was deleted meanwhile.
        ForeignStore, NewerFormat, StoreFailed: it cannot be read.
        StoreKeyMissing, StoreKeyWrong: it cannot be read without another key.
    """
    encrypted = is_encrypted(place.log)
    keyring = load_keyring() if encrypted else None
    as_written = encrypted and allow_undecrypted and keyring is None
    encryption = Encryption(keyring, as_written=as_written)
    disk, offline = _opened(place, encryption, unlocked=unlocked)
    try:
        if adopt_lanes and offline.report.gaps:
            offline.adopt()
        offline.recall(disk)
        offline.replay.finish(_NoStore(), time.time_ns() // 1000)
        yield offline
    finally:
        offline.store.close()


def _opened(
    place: VhostPlace, encryption: Encryption, *, unlocked: bool
) -> tuple[ReadOnlyDisk, OfflineVhost]:
    for left in reversed(range(ATTEMPTS)):
        disk = ReadOnlyDisk(place.log, unlocked=unlocked)
        try:
            offline = OfflineVhost(disk, encryption)
        except StoreInUse as error:
            raise DurableError(
                f"{place.log} is open in a broker: stop the broker, or use --unlocked to read anyway"
            ) from error
        except StoreFailed as error:
            _check_exists(place)
            if isinstance(error.__cause__, PermissionError):  # Not a disk error; it names the file.
                raise error.__cause__ from None
            # A segment was freed after the directory was listed: read again what is there now.
            if not (unlocked and left and isinstance(error.__cause__, FileNotFoundError)):
                raise
            continue
        try:
            _check_exists(place)  # If it is being deleted, only some of it may have been read.
        except VhostGone:
            offline.store.close()
            raise
        return disk, offline
    raise AssertionError("the last attempt returns or raises")


def _check_exists(place: VhostPlace) -> None:
    """Raises VhostGone if the vhost is being deleted, or is not there."""
    if is_deleted(place.log.parent) or not place.log.is_dir():
        raise VhostGone(f"vhost {place.name} was deleted while it was read")


def kind_name(kind: int) -> str:
    try:
        return Kind(kind).name.lower()
    except ValueError:
        return f"kind {kind}"
