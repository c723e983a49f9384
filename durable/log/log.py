"""The log as a broker uses it: append at once, wait until it is durable, read.

    async with open_log(RealDisk("/var/lib/mesh")) as log:
        (position,) = log.append_nowait([Draft(Kind.PUBLISH, batch, targets, now_us)])
        await log.wait_durable(position)       # now it may be confirmed

A commit waits for the disk in a thread or in the kernel, while the next one gathers. So records never wait for a
batch to fill, and still share a commit when there are several. After a disk failure every waiter gets StoreFailed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio

from mesh.nursery import run_within, running
from mesh.waker import Bell, Waker

from ..errors import NotInLog, StoreBusy, StoreFailed, StoreFull, StoreKeyMissing
from .calls import Calls, InThread
from .cipher import Cipher
from .commits import Commits
from .committing import Commit
from .compaction import RECOUNT_FACTOR, Chosen, choose
from .config import LogConfig
from .disk import Disk
from .encryption import Encryption
from .hanging import report_hanging
from .opening import Opening
from .record import Draft, Record
from .recovery import FindStart
from .report import LogGap, RecoveryReport
from .scarcity import Scarcity
from .segments import Tally
from .segments_ahead import make_ahead
from .spares import SPARES
from .statistics import LogStatistics
from .store import Store, open_store
from .verification import Visit
from .waiters import Waiters

logger = logging.getLogger("durable.log")
T = TypeVar("T")


@asynccontextmanager
async def open_log(
    disk: Disk, config: LogConfig | None = None, *, start: int | FindStart = 0, visit: Visit | None = None,
    in_thread: InThread | None = None, encryption: Encryption | None = None,
) -> AsyncGenerator[Log]:  # fmt: skip
    """Open a log for as long as the block lasts; at its end, what was appended is still committed.

    Args:
        start: the log position from which to recover, if the effects of all records before are known from elsewhere;
            or a function that returns it, called in a worker thread once the directory is locked.
        visit: called in a worker thread with each valid record from `start` on, in order.
        in_thread: runs calls that block. None: trio's worker threads, and for commits our own thread or the kernel.
        encryption: the keys, and whether to encrypt. None: no keys, no encryption.
    Raises:
        StoreInUse, ForeignStore, NewerFormat: this directory cannot be opened.
        StoreKeyMissing, StoreKeyWrong: it is encrypted, and the keys given do not fit.
        StoreFailed: the disk failed while it was being opened, or the system is out of descriptors or threads.
    """
    config = config or LogConfig()
    opening = Opening(in_thread or trio.to_thread.run_sync)
    store = await opening.open(
        partial(
            open_store, disk, config, new_store_id=os.urandom(16), now_us=time.time_ns() // 1000,
            clock=time.perf_counter, start=start, visit=visit, encryption=encryption, check=opening.check,
        )
    )  # fmt: skip
    try:
        log = Log(store, config, in_thread)
    except (OSError, RuntimeError) as error:  # No descriptor left for its thread, or no thread.
        store.close()
        raise StoreFailed(f"{store.path} cannot be opened: {error}") from error
    try:
        watch = partial(report_hanging, log._committer, log._commit_begun, log._changed)
        ahead = partial(
            make_ahead, store, log._call, log._files_wanted, wait_for_space=log._wait_for_space,
            notify=log._wake_waiting, fail=log._fail,
        )  # fmt: skip
        async with running(log._begin, log._begin_unhurried, log._finish, ahead, watch):
            try:
                await log._wait_ready()
                yield log
            finally:
                with trio.CancelScope(shield=True):
                    await log._drain()
    finally:
        log._close()


class Log:
    """A log, made by `open_log`. To be used from its trio thread only, except where a method says otherwise."""

    def __init__(self, store: Store, config: LogConfig, in_thread: InThread | None) -> None:
        self._store, self._config = store, config
        self._committer = store.committer
        self._scarcity = Scarcity(f"the store in {store.path}", config.retry_s)
        self._commit_wanted, self._commit_begun = Waker(), Waker()
        self._files_wanted, self._unhurried = Waker(), Waker()
        """`_unhurried` is woken when records have gathered that nobody waits for, and no commit is under way."""
        self._hurried = False
        """Whether somebody waits for a record that has gathered."""
        self._changed = Bell()
        """Rung after each commit, segment and failure, so that waiting tasks look again."""
        self.calls = Calls(in_thread or trio.to_thread.run_sync, self._changed)
        """Calls in worker threads. Also for users that work in this directory, or rely on its lock elsewhere."""
        self._commits = Commits(store, self.calls, in_thread)
        self._turn = trio.Lock()
        self._waiters = Waiters()
        self._held = False
        """Whether the task that appends now begins the commit as well: see `hold`."""
        self._space = Bell()
        self.backlog = store.committer.placer.backlog  # To be set by the user of the log.
        self.on_commit: Callable[[], object] = lambda: None
        """Called whenever more is durable, there is room again, or the store has stopped."""
        self._snapshot_end = 0
        """The last snapshot has the effects of all records before this; no segment that ends behind it is freed."""
        self._freeing = trio.Lock()
        """Held by `free`: checkpoints and compaction both call it, and one would drop what the other left unremoved."""

    @property
    def report(self) -> RecoveryReport:
        """How the store was found when it was opened."""
        return self._store.report

    def add_lost(self, gaps: Iterable[LogGap]) -> None:
        """Add gaps to the report: records that the visitor of all others needs, and that recovery has not found."""
        self._store.report = self.report.with_lost(gaps)

    @property
    def cipher(self) -> Cipher | None:
        """None: nothing in this store is encrypted."""
        return self._store.cipher

    @property
    def end(self) -> int:
        """The log position of the next record."""
        return self._committer.end

    @property
    def durable_end(self) -> int:
        """All records before this log position survive a power cut."""
        return self._committer.durable_end

    @property
    def failure(self) -> str | None:
        """Why the store has stopped for good; None if it has not."""
        return self._committer.failure

    @property
    def append_bytes_max(self) -> int:
        """Most that one append may take: what fits in an empty segment beside what is kept."""
        return self._committer.placer.append_bytes_max

    @property
    def reserve_bytes(self) -> int:
        """See LogConfig."""
        return self._config.reserve_bytes

    @property
    def segment_bytes(self) -> int:
        """See LogConfig."""
        return self._config.segment_bytes

    def keep_for_snapshot(self, size_bytes: int) -> None:
        """See Placer. To be called once: from then on appended snapshots and definitions tell the size."""
        self._committer.placer.keep_for_snapshot(size_bytes)
        self._store.place_vacant = self._committer.placer.snapshot_spent
        self._files_wanted.wake()

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        """Take records to be written and return their log positions; all are taken or none.

        Bodies are not copied, and must not change any more. This alone promises nothing: see `wait_durable`.

        Args:
            hurry: False: nobody waits for these records. The next commit takes them along; without one they are
                committed after `company_s`, or when somebody calls `hurry`.
        Raises:
            TooLarge: they would not fit an empty segment.
            StoreBusy: too much is waiting; `append` waits for room.
            StoreFull: the disk is full. Acks and definitions are still taken, see Placer.
            StoreFailed, StoreClosed: this log takes nothing any more.
        """
        try:
            return self._committer.append(drafts)
        finally:  # Also if there was no room: there will be, once what waits is committed.
            if hurry:
                self.hurry()
            elif self._committer.commit is None:
                self._unhurried.wake()
            if self._committer.segment_pending:
                self._files_wanted.wake()

    def hurry(self) -> None:
        """Commit what has been appended as soon as the disk is free, because somebody waits for it."""
        self._hurried = True
        if not self._held and self._committer.commit is None:
            self._commit_wanted.wake()

    def hold(self) -> None:
        """Do not wake the task that begins commits: the caller will call `commit_nowait` before its turn is over."""
        self._held = True

    def commit_nowait(self) -> None:
        """Begin to commit what has gathered. If a commit is under way, the next one begins at its end.

        Without this call a commit begins in the turn after an append, so that it includes what other ready tasks
        have appended by then.
        """
        self._held = False
        commit = self._committer.begin(trio.current_time())
        if commit is not None:
            self._hurried = self._committer.gathered  # More than one commit takes.
            self._start(commit)

    async def append(self, drafts: Sequence[Draft]) -> range:
        """As `append_nowait`, but wait for room, first come first served. If cancelled, nothing was taken."""
        async with self._turn:
            return await self.with_room(partial(self.append_nowait, drafts))

    async def with_room(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; after StoreBusy it is called again, when there may be room.

        No other task runs between the return of `attempt` and that of this call: what was true when it appended
        still is. Several tasks that wait here are in no order; for an order, see `append`.

        Args:
            attempt: appends, and decides each time anew what to append, because it may have waited. If it raises
                StoreBusy it must have changed nothing.
        Raises:
            What `attempt` raises, except StoreBusy.
        """
        while True:
            try:
                return attempt()
            except StoreBusy as error:
                needed_bytes = error.needed_bytes
            await self._changed.wait()
            while self._committer.is_busy(needed_bytes):
                await self._changed.wait()

    async def wait_durable(self, position: int) -> None:
        """Return when the record at this log position is on stable storage.

        Raises:
            NotInLog: nothing has been appended there yet.
            StoreFailed, StoreClosed: it is unknown whether it ever will be.
        """
        committer = self._committer
        if position >= committer.end:
            raise NotInLog(position, self._store.segments.start, committer.end)
        if position < committer.durable_end:
            await trio.lowlevel.checkpoint()
            return
        committer.check()
        if committer.commit is None or position >= committer.commit.end:
            self.hurry()
        await self._waiters.wait(position)
        if position >= committer.durable_end:
            committer.check()

    async def read(self, position: int, limit_bytes: int) -> list[Record]:
        """Return durable records from this log position on, of about `limit_bytes`; gaps are left out. Raises
        StoreFailed, StoreClosed."""
        read = self._store.reader.read_some
        call = partial(self.calls.call, "reading", read, position, self.durable_end, limit_bytes)
        try:
            records: list[Record] = await self._scarcity.retry(call)
        # Records that cannot be read now, or not without their key, are not damaged: damage would be settled and freed.
        except (OSError, StoreKeyMissing) as error:
            self._fail("reading failed", error)
            raise StoreFailed(str(self._committer.failure)) from error
        return records

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """Add `count` references to the durable record at this log position, or to its effects.

        Args:
            size_bytes: size of the record, or an estimate, times `count`. A record that several things need is
                counted several times, so that compaction waits a little rather than carry forward more than it frees.
        """
        self._store.segments.refer(position, count, size_bytes)

    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """Remove `count` references; the size must be that given when they were added."""
        self._store.segments.release(position, count, size_bytes)

    def in_same_segment(self, low: int, high: int) -> bool:
        """Whether a reference to one of these log positions, or to one between, does the same as one to another."""
        return self._store.segments.in_same_segment(low, high)

    def refer_each(self, positions: range, size_bytes: int) -> None:
        """As `refer` to each of these records, at the cost of one call per segment."""
        self._store.segments.refer_each(positions, size_bytes)

    def release_each(self, positions: range, size_bytes: int) -> None:
        """As `release` of each of these records."""
        self._store.segments.release_each(positions, size_bytes)

    def snapshot_at(self, position: int) -> None:
        """Note that a durable snapshot has the effects of all records before this log position. Before that nothing is
        freed, because acks and definitions are needed although nothing refers to them."""
        assert position < self.durable_end, "of what a snapshot knows that is durable itself"
        self._snapshot_end = max(self._snapshot_end, position)

    def to_compact(self, releases: Tally | None = None) -> Chosen | None:
        """Return the segment to compact next, if any: see compaction.py. `releases`: what will be cut out on the
        way."""
        full, carried_bytes_max = self.full, self._committer.placer.carried_bytes_max
        known_end = self.durable_end if full else self._snapshot_end  # A snapshot will have it.
        return choose(
            self._store.segments.candidates(known_end, trio.current_time(), releases),
            self._config.compaction_share_max, carried_bytes_max, full=full,
        )  # fmt: skip

    def exclude_segment(self, position: int) -> None:
        """Exclude the segment with this log position from compaction until the log is opened again."""
        self._store.segments.exclude(position)

    def put_off(self, chosen: Chosen, counted_bytes: float) -> None:
        """Note that carrying this segment forward takes at least `counted_bytes`, more than it was chosen for."""
        growth = RECOUNT_FACTOR * counted_bytes / chosen.needed_bytes
        self._store.segments.raise_growth(chosen.positions.start, growth, cut=chosen.cut)

    def encoded_marks(self, position: int) -> bytes:
        """See Segments."""
        return self._store.segments.encoded_marks(position)

    def tally(self) -> Tally:
        """Return an empty tally, for what is about to be released: see `would_free`."""
        return Tally(self._store.segments)

    def would_free(self, position: int, releases: Tally | None = None) -> bool:
        """Return whether `snapshot_at` this log position would free segments, if what is in the tally were released."""
        return bool(self._store.segments.unused(position, releases))

    @property
    def full(self) -> bool:
        """See Committer."""
        return self._committer.full

    @property
    def segment_spent(self) -> bool:
        """See Committer."""
        return self._committer.segment_spent

    async def free(self) -> list[int]:
        """Delete the sealed segments before the last snapshot that nothing refers to; return their numbers.

        Right after opening there are no references: `refer` to what is needed before calling this.
        """
        async with self._freeing:
            store, spares = self._store, self._committer.placer.spares
            gone = store.segments.unused(self._snapshot_end)
            store.segments.remove(gone)
            store.unremoved += [one.number for one in gone]
            numbers = list(store.unremoved)
            if not numbers:
                return []
            try:
                spares_max = max(0, SPARES - len(spares.small))
                spares.add(*await self.calls.call("freeing", store.remove, spares_max))
            except OSError as error:
                store.remove_error = error
            # No data is affected; the files only take space for longer.
            if gone and store.remove_error:
                logger.warning("freed segments stay on the disk for now: %s", store.remove_error)
            self._space.wake()
            return [number for number in numbers if number not in store.unremoved]

    async def in_thread(self, call: Callable[..., T], *arguments: Any, kind: str = "beside") -> T:
        """Run a call that writes other files in the directory, one at a time, and return what it returns. If this is
        cancelled the call goes on, and the store stays open until it ends: it should call `check` where it can stop."""
        found: T = await self.calls.call(kind, call, *arguments)
        return found

    def check(self) -> None:
        """Raises StoreFailed or StoreClosed if this log takes nothing any more. From any thread."""
        self._committer.check()

    def statistics(self) -> LogStatistics:
        return LogStatistics.of(self._committer, trio.current_time())

    # Background

    async def _wait_ready(self) -> None:
        """Return when there is a segment ahead, or it is known why not: so no first append gets StoreBusy for that."""
        while self._committer.segment_pending:
            await self._changed.wait()

    async def _begin(self) -> None:
        """Begin commits in the turn after an append, unless its caller has begun the commit in its own turn."""
        while not self._committer.stopped:
            await self._commit_wanted.wait()
            self.commit_nowait()

    async def _begin_unhurried(self) -> None:
        """Commit records that nobody waits for, when no other commit has taken them along for a while."""
        while not self._committer.stopped:
            await self._unhurried.wait()
            await trio.sleep(self._config.company_s)
            self.commit_nowait()

    async def _finish(self) -> None:
        """Finish one commit after the other. It begins to wait before a commit begins, so that it needs no turn between
        the beginning and the end of one."""
        committer = self._committer
        while not committer.stopped:
            try:
                await self._commits.finish()
            except Exception as error:
                await self._commit_failed(error)
            else:
                committer.done()
                self._wake_waiting()
            if self._hurried:
                self.commit_nowait()
            elif committer.gathered:
                self._unhurried.wake()

    async def _commit_failed(self, error: Exception) -> None:
        """Return when the commit under way has been begun again, or the store has stopped."""
        if isinstance(error, StoreFull):
            self._committer.refused(error.free_bytes)
            self._wake_waiting()
            await self._wait_for_space()
            if not self._committer.stopped:
                self._start(self._committer.begin_again(trio.current_time()))
        else:
            self._fail("a commit failed", error)

    def _start(self, commit: Commit) -> None:
        self._commits.start(commit)
        self._commit_begun.wake()

    async def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await self._scarcity.retry(partial(self.calls.call, "making", call, *arguments))

    async def _wait_for_space(self) -> None:
        with trio.move_on_after(self._config.retry_s):
            await self._space.wait()

    def _fail(self, what: str, error: Exception) -> None:
        """Stop the store: take nothing any more, and wake all waiting tasks."""
        self._committer.failed(f"{what}: {error}")
        logger.error("the store in %s has stopped: %s: %s", self._store.path, what, error)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Wake the tasks that wait for what has just happened."""
        committer = self._committer
        self._waiters.wake(None if committer.stopped else committer.durable_end)
        self.on_commit()
        self._changed.wake()

    async def _drain(self) -> None:
        """Commit what has been appended, unless that fails, is refused, or takes too long."""
        committer = self._committer
        self._hurried = True
        self.commit_nowait()

        async def wait_done() -> None:
            while self.calls or not (
                committer.stopped
                or committer.waits_for_space
                or committer.durable_end == committer.end
            ):
                await self._changed.wait()

        await run_within(self._config.commit_s_max, wait_done)
        committer.close()
        self._wake_waiting()

    def _close(self) -> None:
        self._commits.close()
        if not self.calls.close(self._store.close):
            # A thread is still in the kernel with these files. To close them, or to let another broker in, would be
            # worse than to keep both until it returns, or this process ends.
            logger.error("the store in %s stays open, because a call hangs", self._store.path)
