"""Snapshots and checkpoints of a running vhost, and the way back from them at its start.

With nobody waiting for it: every queue that has changed is encoded, some at a time, each as of the
records that have been applied by then; all of that becomes durable, and the files are written. Then, in
one moment: whatever is settled is appended, and a snapshot. The root is last, and after it the log may
give up segments.

The snapshot comes behind the files: on a full disk it takes what is kept for the one that gives space
back, and without a segment to let go that would be in vain. Where something comes between it and the root,
as a kill, there is no room for another one. So it says by itself what it knows: on a full disk that is
enough to let segments go, and the root goes with them. Where there is no room for the files, it says all
that they would, and what settlements the log has no room for either: so these go on without end.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import trio

from mesh.errors import TooLarge

from ..config import BrokerConfig
from ..errors import StoreError, StoreFull
from ..log.checkpoints import NOWHERE, Checkpoints, Root
from ..log.cipher import Cipher
from ..log.disk import NO_SPACE, Disk
from ..log.recovery import Beginning
from ..vhost.checkpointing import Checkpointing, Taking, decode_extra, load, recall
from ..vhost.replay import Replay
from ..vhost.store import append_twice
from .hosted import Hosted
from .listing import in_turns

logger = logging.getLogger("durable")
LOOKS_MAX = 8
"""From one attempt to the next, where none finds room: each encodes all there is to say, and nobody declares
anything meanwhile."""


def begin_at(
    disk: Disk, store_id: bytes, cipher: Cipher | None, replay: Replay, *, end: int | None
) -> Beginning:
    """Load what the checkpoints know; the log position from which the rest has to be read, and what of
    it has to be there.

    Called in a worker thread, once the directory is locked, before anything is read. 0: from the
    front, and all that is known is what was settled, which holds whatever else does not.

    Args:
        end: where the log was found to end: it has been read, and what was loaded before that did
            not hold. What queues have ahead of it is removed; the root stays for what it says has to
            be there, until there is another one. None: nobody knows yet.
    """
    files, registry = Checkpoints(disk, store_id, lambda: NOWHERE, cipher), replay.registry
    returns: dict[int, int] = {}
    root = files.read_root()
    if end is not None:
        for _ in files.acks():
            pass  # For what they say has to be there, before those ahead of the end are removed.
        files.remove_unfinished()  # It may be ahead, too.
        _recall(Checkpoints(disk, store_id, lambda: end, cipher), replay)
        return Beginning(0, files.kept(root))
    if root is not None:
        try:
            named = decode_extra(root.extra)
            for name, lane, position in named:
                checkpoint = files.read(name, lane)
                if checkpoint is None or checkpoint.position < position:
                    raise ValueError(f"the checkpoint of {name!r} is not what the root says")
                returns |= load(registry, checkpoint)
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("%s: reading the whole log instead of checkpoints: %s", disk.path, error)
            registry.lanes.clear()
            returns.clear()
        else:
            for _ in files.acks(besides=[one.name for one in named]):
                pass  # Not loaded, but they must not be ahead of the log either.
            replay.begins(root.start, root.snapshot, returns, files.reach)
            return Beginning(root.start, files.kept(root), root.marks)
    _recall(files, replay)
    return Beginning(0, files.kept(root))


def _recall(files: Checkpoints, replay: Replay) -> None:
    """What was settled, whatever else there is."""
    returns: dict[int, int] = {}
    for ack in files.acks():
        with suppress(ValueError, TypeError, KeyError):  # Not needed, as ever.
            returns |= recall(replay.registry, ack)
    replay.begins(0, 0, returns, files.reach)


class Checkpointer:
    """Writes them, every so many bytes and records, and at the end."""

    def __init__(
        self, hosted: Hosted, disk: Disk, checkpointing: Checkpointing, config: BrokerConfig, *,
        known: int = 0,
    ) -> None:  # fmt: skip
        """
        Args:
            config: after how much of what; a segment of anything is enough as well.
            known: a snapshot that is in the log knows what records before this log position did.
        """
        self._hosted, self._checkpointing, self._config = hosted, checkpointing, config
        self._known = known
        log = hosted.log
        self._files = Checkpoints(disk, log.report.store_id, lambda: log.durable_end, log.cipher)
        behind = log.report.bytes_read >= config.log.segment_bytes
        self._segments = -1 if behind else log.statistics().segments
        """How many there were at the last one. Unlike any, if one has been begun since, in an earlier life: who is killed
        before each could begin another would read more each time, and free nothing."""
        self._settled = self._committed = 0
        self._written = 0
        """Bytes of the last one, files and snapshot."""
        self._counted_from = log.end - log.report.records
        """Records count from this log position on: what the last checkpoint knows ends here, if it came to anything."""
        self._warned = False
        """That the snapshot is too large, since there was one that was not."""
        self._trouble: type[Exception] | None = None
        """Why there was none the last time: said once, for it is tried again all the time."""
        self._writing = trio.Lock()

    @property
    def due(self) -> bool:
        log = self._hosted.log
        statistics = log.statistics()
        if statistics.full:  # No further segment is to come, and somebody waits for space.
            return self._worth_it(self._hosted.applied_end)
        settled = self._hosted.vhost.settling.appended_bytes - self._settled
        return (
            statistics.segments != self._segments
            or settled >= self._config.checkpoint_bytes
            or self._many_records(statistics.end, statistics.committed_bytes)
        )

    def _many_records(self, end: int, committed_bytes: int) -> bool:
        """Since the last one; and as many bytes in the log as that one took, for this one will take as many."""
        enough = end - self._counted_from >= self._config.checkpoint_records
        return enough and committed_bytes - self._committed >= self._written

    def _worth_it(self, start: int) -> bool:
        """Whether a snapshot that knows what there was before this log position is worth its room: on a full
        disk it takes what is kept for the one that gives space back."""
        log = self._hosted.log
        if not log.full or log.spent or log.would_free(start):
            return True
        # It says, too, what the log has no room for.
        return self._hosted.vhost.settling.refused_would(partial(log.would_free, start))

    async def run(self, look_s: float) -> None:
        """Until cancelled."""
        log, pause_s = self._hosted.log, look_s
        while True:
            await trio.sleep(pause_s)
            pause_s, before = look_s, pause_s
            if log.full:
                await log.free()  # What could not be removed may be now.
            if self.due:
                fits = False
                try:
                    fits = await self.write()
                    self._trouble = None
                except (StoreError, OSError) as error:  # Not needed; the log goes on without.
                    if type(error) is not self._trouble:
                        logger.warning("no checkpoint of %s: %s", self._hosted.vhost.name, error)
                    self._trouble = type(error)
                if not fits:
                    pause_s = min(2 * before, LOOKS_MAX * look_s)

    async def write_last(self) -> None:
        """At the end, so that the next start reads less.

        Raises:
            StoreError, OSError: as `write`.
        """
        self._hosted.turn()  # What has just been settled is appended, with a snapshot or without.
        await self.write()

    async def write(self) -> bool:
        """One of everything, unless a segment is too small for its snapshot, which is logged, or the disk
        is full and it would give no space back.

        Returns:
            Whether its snapshot is one that a segment takes.
        Raises:
            StoreError, OSError: it could not be written; what was there before holds.
        """
        async with self._writing:  # The last one of all may come while another is under way.
            start = self._hosted.applied_end
            try:
                await self._write(start)
                self._warned = False
                return True
            except TooLarge as error:
                if not self._warned:
                    logger.warning(
                        "no checkpoint of %s: its snapshot of %d bytes is more than a segment takes "
                        "(%d). Until the broker has larger segments no space is given back, "
                        "and a start reads all since the last one",
                        self._hosted.vhost.name, error.size_bytes, error.limit_bytes,
                    )  # fmt: skip
                    self._warned = True
                return False
            finally:
                self._begin_again(start)

    def _begin_again(self, start: int) -> None:
        """The next one is due when as much has happened again, whatever became of this one."""
        statistics = self._hosted.log.statistics()
        self._segments, self._committed = statistics.segments, statistics.committed_bytes
        self._settled = self._hosted.vhost.settling.appended_bytes
        self._counted_from = start

    async def _write(self, start: int) -> None:
        """Of what there was before this log position. Raises TooLarge: the snapshot is more than a segment takes."""
        log = self._hosted.log
        if log.full and log.would_free(self._known):
            await log.in_thread(self._files.drop_root, self._known)
            await self._free()
            return
        if not self._worth_it(start):
            return
        self._written = 0
        marks = log.encoded_marks(start)
        taking = await self._write_changed(marks)
        snapshot = await self._append_snapshot(start, alone=taking is None)
        if snapshot is None:
            return
        # Not its own position: what was still on its way to the disk then, such as the settlement of
        # what was dead-lettered, it does not know.
        self._known = start
        if taking is None:
            await log.in_thread(self._files.drop_root, start)
        else:
            root = Root(snapshot, start, taking.extra, marks)
            await log.in_thread(self._write_root, root)
        await self._free()

    async def _write_changed(self, marks: bytes) -> Taking | None:
        """What is in the files now. None: the disk is full, there was no room, and the snapshot has to do alone."""
        log = self._hosted.log
        try:
            taking = await self._take()
            await log.in_thread(self._write_files, taking, marks)
        except StoreFull:
            return None
        except OSError as error:
            if error.errno in NO_SPACE and log.full:
                return None
            raise
        self._checkpointing.written(taking)
        self._written += sum(one.size_bytes for one in taking.changed)
        return taking

    async def _free(self) -> None:
        """What the last snapshot knows and nothing needs; there is no root that would miss it."""
        hosted, log = self._hosted, self._hosted.log
        log.snapshot_at(self._known)
        hosted.turn()  # Whatever is durable has told the log what it needs, before that gives up any.
        freed = await log.free()
        if freed:
            logger.info("%s: segments %s are free", hosted.vhost.name, freed)

    async def _take(self) -> Taking:
        """The files to be written, with everything in them durable in the log. Raises StoreError."""
        hosted, log = self._hosted, self._hosted.log
        taking = self._checkpointing.begin()
        # Also where every queue is empty, and has no file: what they settled may have found no room.
        await log.with_room(self._flush)
        while taking.more:
            taking.take(hosted.applied_end, hosted.vhost.settling.last_position)
            await trio.lowlevel.checkpoint()
            await log.with_room(self._flush)
        await log.durable(log.end - 1)  # What is settled in a file has to be so in the log.
        return taking

    async def _append_snapshot(self, start: int, *, alone: bool) -> int | None:
        """Its log position, durable. None: meanwhile the disk is full, and it is not worth its room. Raises
        TooLarge."""
        hosted, log = self._hosted, self._hosted.log
        snapshot = hosted.vhost.snapshot(start, alone=alone)

        def append() -> range:
            hosted.turn()
            if not self._worth_it(start):
                return range(0)
            now_us, full = hosted.clock.now_us(), log.full
            drafts = hosted.vhost.drafts(snapshot, now_us, full=full)
            try:
                positions = append_twice(log, drafts)
            except TooLarge:  # Once is better than no checkpoints at all.
                positions = log.append_nowait(drafts)
            if alone:
                hosted.vhost.settling.covered(positions[-1])
            times = len(positions) // len(drafts)
            self._written += times * sum(draft.size_bytes for draft in drafts)
            return positions

        async with hosted.gate.alone():
            await in_turns(snapshot.steps())
            positions = await log.with_room(append)
        if not positions:
            return None
        await log.durable(positions[-1])
        return positions[0]

    def _flush(self) -> None:
        """Append everything settled or returned so far. Raises StoreError."""
        self._hosted.turn()
        refusal = self._hosted.vhost.settling.refusal
        if refusal is not None:
            raise refusal

    def _write_files(self, taking: Taking, marks: bytes) -> None:
        check = self._hosted.log.check
        self._files.write_all((one.checkpoint() for one in taking.changed), check)
        check()
        self._files.make_room(taking.extra, marks)

    def _write_root(self, root: Root) -> None:
        check = self._hosted.log.check
        self._files.write_root(root, check)
        check()
        names = [one.name for one in decode_extra(root.extra)]
        self._files.remove_others(names, check)
