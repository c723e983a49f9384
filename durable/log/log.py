"""The log as a broker uses it: appending at once, waiting until it is durable, reading.

    async with open_log(RealDisk("/var/lib/mesh")) as log:
        (position,) = log.append_nowait([Draft(Kind.PUBLISH, batch, targets, now_us)])
        await log.durable(position)            # now it may be confirmed

Commits wait for the disk in a thread or in the kernel while the next one gathers: nobody waits for company,
and nobody is without it when there is some. After a failure of the disk every waiter gets StoreFailed, for good.
"""

from __future__ import annotations

import heapq
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, TypeVar

import trio

from mesh.nursery import run_within, running
from mesh.waker import Bell, Waker

from ..errors import NotInLog, StoreBusy, StoreFailed, StoreFull, StoreKeyMissing
from .calls import Calls, InThread
from .cipher import Cipher
from .commits import Commits
from .committing import Commit
from .compaction import AGAIN, Chosen, choose
from .config import LogConfig
from .disk import Disk
from .encryption import Encryption
from .hanging import report_hanging
from .making import make_ahead
from .opening import Opening
from .record import Draft, Record
from .recovery import Begin, Visit
from .report import LogGap, RecoveryReport
from .scarcity import Scarcity
from .segments import Tally
from .spares import SPARES
from .statistics import LogStatistics
from .store import Store, open_store

logger = logging.getLogger("durable.log")
T = TypeVar("T")


@asynccontextmanager
async def open_log(
    disk: Disk, config: LogConfig | None = None, *, start: int | Begin = 0, visit: Visit | None = None,
    in_thread: InThread | None = None, encryption: Encryption | None = None,
) -> AsyncGenerator[Log]:  # fmt: skip
    """A log for as long as the block lasts; at its end, what was appended is still committed.

    Args:
        start: log position that recovery may begin at, when all before is known from elsewhere; or
            what says so, called in a worker thread once the directory is locked.
        visit: called in a worker thread with each valid record from `start` on, in order.
        in_thread: runs what blocks. None: trio's worker threads; for commits one of our own, or the kernel.
        encryption: the keys there are, and whether to encrypt. None: neither.
    Raises:
        StoreInUse, ForeignStore, NewerFormat: this directory cannot be opened.
        StoreKeyMissing, StoreKeyWrong: it is encrypted, and not for the keys there are.
        StoreFailed: the disk failed while it was being opened, or there was too little left of this system.
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
        watch = partial(report_hanging, log._committer, log._begun, log._changed)
        ahead = partial(
            make_ahead, store, log._call, log._wanted, space=log._wait_for_space, tell=log._tell,
            fail=log._fail,
        )  # fmt: skip
        async with running(log._begin, log._begin_alone, log._finish, ahead, watch):
            try:
                await log._ready()
                yield log
            finally:
                with trio.CancelScope(shield=True):
                    await log._drain()
    finally:
        log._close()


class Log:
    """Made by `open_log`. To be used from its trio thread only."""

    def __init__(self, store: Store, config: LogConfig, in_thread: InThread | None) -> None:
        self._store, self._config = store, config
        self._committer = store.committer
        self._scarcity = Scarcity(f"the store in {store.path}", config.retry_s)
        self._work, self._wanted, self._begun, self._lonely = Waker(), Waker(), Waker(), Waker()
        """The last one is woken when something has gathered that nobody waits for, and no commit is under way."""
        self._hurried = False
        """Whether somebody waits for something that has gathered."""
        self._changed = Bell()
        """Rung after each commit, segment and failure: whoever waits looks again."""
        self.calls = Calls(in_thread or trio.to_thread.run_sync, self._changed)
        """Also for who does something in this directory, or elsewhere under the protection of its lock."""
        self._commits = Commits(store, self.calls, in_thread)
        self._turn = trio.Lock()
        self._waiters: list[tuple[int, int, trio.Event]] = []
        self._order = count()
        self._held = False
        """Whether whoever appends now begins the commit as well."""
        self._space = Bell()
        self.waiting = store.committer.placer.waiting  # For whoever appends it to say.
        self.on_commit: Callable[[], object] = lambda: None
        """Called whenever more is durable, there is room again, or the store has stopped."""
        self._snapshot = 0
        """What the last one knows ends here; no segment that ends behind it is freed."""
        self._freeing = trio.Lock()
        """Checkpoints and compaction both do, and one would forget what the other has left."""

    @property
    def report(self) -> RecoveryReport:
        """How the store was found when it was opened."""
        return self._store.report

    def lost(self, gaps: Iterable[LogGap]) -> None:
        """Whoever was shown the records needs these, too, and they have not been found."""
        self._store.report = self.report.with_lost(gaps)

    @property
    def cipher(self) -> Cipher | None:
        """None: nothing in this store is encrypted."""
        return self._store.cipher

    @property
    def end(self) -> int:
        """The log position that the next record gets."""
        return self._committer.end

    @property
    def durable_end(self) -> int:
        """All records before this log position survive a power cut."""
        return self._committer.durable_end

    @property
    def failure(self) -> str | None:
        """Why the store has stopped for good, if it has."""
        return self._committer.failure

    @property
    def append_bytes_max(self) -> int:
        """Most that is taken at once: what goes into an empty segment beside what is kept."""
        return self._committer.placer.append_bytes_max

    @property
    def reserve_bytes(self) -> int:
        """See LogConfig."""
        return self._config.reserve_bytes

    def keep_for_snapshot(self, size_bytes: int) -> None:
        """See Placer. To be said once: from then on it is known from what is appended."""
        self._committer.placer.keep_for_snapshot(size_bytes)
        self._store.in_place = self._committer.placer.snapshot_spent
        self._wanted.wake()

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        """Take records to be written and return their log positions; all of them or none.

        Bodies must not change any more; they are not copied. On its own this promises nothing: see
        `durable`.

        Args:
            hurry: False: nobody waits for them. The next commit takes them along; without one they
                are committed after `company_s`, or when somebody hurries.
        Raises:
            TooLarge: more than an empty segment takes.
            StoreBusy: too much is waiting; `append` waits for room.
            StoreFull: the disk is full. Acks and definitions are still taken, see Placer.
            StoreFailed, StoreClosed: this log takes nothing any more.
        """
        try:
            return self._committer.append(drafts)
        finally:  # Also where there was no room: there is, once what waits is committed.
            if hurry:
                self.hurry()
            elif self._committer.commit is None:
                self._lonely.wake()
            if self._committer.segment_pending:
                self._wanted.wake()

    def hurry(self) -> None:
        """Somebody waits for what has been appended: it is committed as soon as the disk is free."""
        self._hurried = True
        if not self._held and self._committer.commit is None:
            self._work.wake()

    def hold(self) -> None:
        """The caller will call `commit_nowait` before its turn is over: nobody else need begin."""
        self._held = True

    def commit_nowait(self) -> None:
        """Begin to commit what has gathered, unless a commit is under way: its end begins the next.

        Without this a commit begins in the turn after an append, together with what others that
        were ready have appended by then.
        """
        self._held = False
        commit = self._committer.begin(trio.current_time())
        if commit is not None:
            self._hurried = self._committer.gathered  # More than one commit takes: on with it.
            self._start(commit)

    async def append(self, drafts: Sequence[Draft]) -> range:
        """As `append_nowait`, but wait for room, first come first. Cancelled: nothing was taken."""
        async with self._turn:
            return await self.with_room(partial(self.append_nowait, drafts))

    async def with_room(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns; after StoreBusy it is called again, when there may be room.

        No other task has its turn between its return and ours: what was so when it appended still
        is. Tasks that wait here at once are in no order, see `append`.

        Args:
            attempt: appends, and decides anew what, for it may have waited since. Where it raises
                StoreBusy it has changed nothing.
        Raises:
            What `attempt` raises, but for StoreBusy.
        """
        while True:
            try:
                return attempt()
            except StoreBusy as error:
                needed_bytes = error.needed_bytes
            await self._changed.wait()
            while self._committer.is_busy(needed_bytes):
                await self._changed.wait()

    async def durable(self, position: int) -> None:
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
        event = trio.Event()
        heapq.heappush(self._waiters, (position, next(self._order), event))
        await event.wait()
        if position >= committer.durable_end:
            committer.check()

    async def read(self, position: int, limit_bytes: int) -> list[Record]:
        """Durable records from this log position on, about so many bytes; gaps are left out. Raises StoreFailed,
        StoreClosed."""
        some = self._store.reader.some
        call = partial(self.calls.call, "reading", some, position, self.durable_end, limit_bytes)
        try:
            records: list[Record] = await self._scarcity.outlast(call)
        # What cannot be read today, or without its key, is no damage, which would be settled and freed.
        except (OSError, StoreKeyMissing) as error:
            self._fail("reading failed", error)
            raise StoreFailed(str(self._committer.failure)) from error
        return records

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """So many more things need the durable record at this log position, or what it did.

        Args:
            size_bytes: of the whole record, or an estimate, for all of them: what several need counts several
                times, so compaction is put off a little rather than carrying forward more than it frees.
        """
        self._store.segments.refer(position, count, size_bytes)

    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        """So many do not any more; the size as it was when they were referred to."""
        self._store.segments.release(position, count, size_bytes)

    def are_together(self, low: int, high: int) -> bool:
        """Whether referring to one of two log positions is as good as to the other, or to one between."""
        return self._store.segments.are_together(low, high)

    def refer_each(self, positions: range, size_bytes: int) -> None:
        """As `refer` to each of these, at the cost of one call for each segment."""
        self._store.segments.refer_each(positions, size_bytes)

    def release_each(self, positions: range, size_bytes: int) -> None:
        """As `release` of each of these."""
        self._store.segments.release_each(positions, size_bytes)

    def snapshot_at(self, position: int) -> None:
        """There is a durable snapshot that knows what records before this log position did. Until this is said
        nothing is freed: acks and definitions are needed although nothing refers to them."""
        assert position < self.durable_end, "of what a snapshot knows that is durable itself"
        self._snapshot = max(self._snapshot, position)

    def to_compact(self, besides: Tally | None = None) -> Chosen | None:
        """The segment to be compacted next, if there is one: see compaction.py. `besides` is cut out on the way."""
        full, carried_bytes_max = self.full, self._committer.placer.carried_bytes_max
        known_end = self.durable_end if full else self._snapshot  # There will be one that knows it.
        return choose(
            self._store.segments.candidates(known_end, trio.current_time(), besides),
            self._config.compaction_share_max, carried_bytes_max, full=full,
        )  # fmt: skip

    def leave(self, position: int) -> None:
        """Do not compact the segment with this log position until the log is opened again."""
        self._store.segments.leave(position)

    def put_off(self, chosen: Chosen, counted_bytes: float) -> None:
        """To carry this segment forward takes at least so much, more than it was chosen for."""
        growth = AGAIN * counted_bytes / chosen.needed_bytes
        self._store.segments.grows(chosen.positions.start, growth, cut=chosen.cut)

    def encoded_marks(self, position: int) -> bytes:
        """See Segments."""
        return self._store.segments.encoded_marks(position)

    def tally(self) -> Tally:
        """Of what is to be released: see `would_free`."""
        return Tally(self._store.segments)

    def would_free(self, position: int, besides: Tally | None = None) -> bool:
        """Whether `snapshot_at` this log position would let segments go, were what is in the tally released."""
        return bool(self._store.segments.unused(position, besides))

    @property
    def full(self) -> bool:
        """See Committer."""
        return self._committer.full

    @property
    def spent(self) -> bool:
        """See Committer."""
        return self._committer.spent

    async def free(self) -> list[int]:
        """Delete the sealed segments before the last snapshot that nothing refers to; their numbers.

        Right after opening nothing refers to anything: `refer` to what is needed first.
        """
        async with self._freeing:
            store, spares = self._store, self._committer.placer.spares
            gone = store.segments.unused(self._snapshot)
            store.segments.remove(gone)
            store.unremoved += [one.number for one in gone]
            numbers = list(store.unremoved)
            if not numbers:
                return []
            try:
                spares_max = max(0, SPARES - len(spares.small))
                spares.add(*await self.calls.call("freeing", store.remove, spares_max))
            except OSError as error:
                store.trouble = error
            if gone and store.trouble:  # What is stored is well: it takes space for longer.
                logger.warning("freed segments stay on the disk for now: %s", store.trouble)
            self._space.wake()
            return [number for number in numbers if number not in store.unremoved]

    async def in_thread(self, call: Callable[..., T], *arguments: Any, kind: str = "beside") -> T:
        """What a call of who writes files beside ours returns, one at a time. Cancelled, it goes on, and the store
        is left open: it is to ask `check` whenever it can end."""
        found: T = await self.calls.call(kind, call, *arguments)
        return found

    def check(self) -> None:
        """Raises StoreFailed, StoreClosed: this log takes nothing any more. From any thread."""
        self._committer.check()

    def statistics(self) -> LogStatistics:
        return LogStatistics.of(self._committer, trio.current_time())

    # Background

    async def _ready(self) -> None:
        """There is a segment ahead, or it is known why not: nothing is busy at the very start."""
        while self._committer.segment_pending:
            await self._changed.wait()

    async def _begin(self) -> None:
        """In the turn after an append, unless its caller has begun the commit in its own."""
        while not self._committer.stopped:
            await self._work.wait()
            self.commit_nowait()

    async def _begin_alone(self) -> None:
        """What nobody waits for, when it has had no company for a while."""
        while not self._committer.stopped:
            await self._lonely.wait()
            await trio.sleep(self._config.company_s)
            self.commit_nowait()

    async def _finish(self) -> None:
        """One commit after the other. It waits before they begin: then it is in nobody's way."""
        committer = self._committer
        while not committer.stopped:
            try:
                await self._commits.finish()
            except Exception as error:
                await self._not_done(error)
            else:
                committer.done()
                self._tell()
            if self._hurried:
                self.commit_nowait()
            elif committer.gathered:
                self._lonely.wake()

    async def _not_done(self, error: Exception) -> None:
        """Return when the commit under way has begun once more, or the store has stopped."""
        if isinstance(error, StoreFull):
            self._committer.refused(error.free_bytes)
            self._tell()
            await self._wait_for_space()
            if not self._committer.stopped:
                self._start(self._committer.again(trio.current_time()))
        else:
            self._fail("a commit failed", error)

    def _start(self, commit: Commit) -> None:
        self._commits.start(commit)
        self._begun.wake()

    async def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await self._scarcity.outlast(partial(self.calls.call, "making", call, *arguments))

    async def _wait_for_space(self) -> None:
        with trio.move_on_after(self._config.retry_s):
            await self._space.wait()

    def _fail(self, what: str, error: Exception) -> None:
        """Nothing is taken any more, and whoever waits hears of it."""
        self._committer.failed(f"{what}: {error}")
        logger.error("the store in %s has stopped: %s: %s", self._store.path, what, error)
        self._tell()

    def _tell(self) -> None:
        """Wake whoever waits for what has just happened."""
        waiters, committer = self._waiters, self._committer
        while waiters and (committer.stopped or waiters[0][0] < committer.durable_end):
            heapq.heappop(waiters)[2].set()
        self.on_commit()
        self._changed.wake()

    async def _drain(self) -> None:
        """Commit what has been appended, unless that fails, is refused, or takes too long."""
        committer = self._committer
        self._hurried = True
        self.commit_nowait()

        async def be_done() -> None:
            while self.calls or not (
                committer.stopped or committer.refusing or committer.durable_end == committer.end
            ):
                await self._changed.wait()

        await run_within(self._config.commit_s_max, be_done)
        committer.close()
        self._tell()

    def _close(self) -> None:
        self._commits.close()
        if not self.calls.close(self._store.close):
            # A thread is still in the kernel with these files: closing them, or letting another
            # broker in, would be worse than keeping both until it is back, or this process ends.
            logger.error("the store in %s is left open: a call hangs", self._store.path)
