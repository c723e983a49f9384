"""Snapshots and checkpoints of a running vhost, and loading them at its start.

Nothing waits for a checkpoint. Every queue that has changed is encoded, a few at a time, each as of the
records that have been applied by then; all of that becomes durable, and the files are written. Then, in
one turn, everything settled so far is appended, and a snapshot behind it. The root is written last; after
that the log may free segments.

The snapshot comes after the files: on a full disk it takes the space kept for the one snapshot that frees
space, and that space would be wasted if the files then found none. For the same reason, a snapshot is made
on a full disk only if it lets a segment be freed. If something happens between snapshot and root, such as a
kill, there is no room for another snapshot. So the snapshot has to be enough by itself: on a full disk it
lets segments be freed, and the old root is removed along with them. If there is no room for the files, the
snapshot also has everything that they would have, and the settlements that the log has no room for: so acks
can go on without end.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import trio

from mesh.errors import TooLarge

from ..config import BrokerConfig
from ..errors import StoreError, StoreFull
from ..log.checkpoints import END_UNKNOWN, Checkpoints, Root
from ..log.cipher import Cipher
from ..log.disk import NO_SPACE, Disk
from ..log.recovery import StartPoint
from ..vhost.checkpointing import Checkpointing, CheckpointRound, decode_extra, load, load_ack
from ..vhost.replay import Replay
from ..vhost.store import append_twice
from .listing import run_steps
from .running_vhost import RunningVhost

logger = logging.getLogger("durable")
PAUSE_FACTOR_MAX = 8
"""Limit of the pause between attempts that find no room, in multiples of the usual pause: each attempt
encodes everything there is, and nothing can be declared meanwhile."""


def load_checkpoints(
    disk: Disk, store_id: bytes, cipher: Cipher | None, replay: Replay, *, end: int | None
) -> StartPoint:
    """Load the checkpoints. Return the log position from which the rest has to be read, and which records
    have to be there.

    Called in a worker thread, once the directory is locked, before anything is read. Position 0 means that
    the whole log has to be read; then only settlements were loaded, which hold whatever else does not.

    Args:
        end: where the log ends, if it has been read already because the checkpoints loaded before did not
            hold. Files of queues that are ahead of this end are removed; the root stays until the next
            one, for what it says has to be there. None: the end is not known yet.
    """
    files, registry = Checkpoints(disk, store_id, lambda: END_UNKNOWN, cipher), replay.registry
    returns: dict[int, int] = {}
    root = files.read_root()
    if end is not None:
        for _ in files.acks():
            # Note what the files say has to be in the log, before those ahead of its end are removed.
            pass
        files.remove_unfinished()  # Unfinished files may be ahead, too.
        _load_settled(Checkpoints(disk, store_id, lambda: end, cipher), replay)
        return StartPoint(0, files.known_durable(root))
    if root is not None:
        try:
            named = decode_extra(root.extra)
            for name, lane, position in named:
                checkpoint = files.read(name, lane)
                if checkpoint is None or checkpoint.position < position:
                    raise ValueError(f"the checkpoint of {name!r} does not match the root")
                returns |= load(registry, checkpoint)
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("%s: reading the whole log instead of checkpoints: %s", disk.path, error)
            registry.lanes.clear()
            returns.clear()
        else:
            for _ in files.acks(known=[one.name for one in named]):
                pass  # They are not loaded, but must not be ahead of the log either.
            replay.resume_from(root.start, root.snapshot, returns, files.log_end_min)
            return StartPoint(root.start, files.known_durable(root), root.marks)
    _load_settled(files, replay)
    return StartPoint(0, files.known_durable(root))


def _load_settled(files: Checkpoints, replay: Replay) -> None:
    """Load only what is settled, which holds whatever else is there."""
    returns: dict[int, int] = {}
    for ack in files.acks():
        with suppress(ValueError, TypeError, KeyError):  # An invalid file counts as none.
            returns |= load_ack(replay.registry, ack)
    replay.resume_from(0, 0, returns, files.log_end_min)


class Checkpointer:
    """Writes checkpoints: after so many bytes or records, and at the end."""

    def __init__(
        self, running: RunningVhost, disk: Disk, checkpointing: Checkpointing, config: BrokerConfig, *,
        covered_end: int = 0,
    ) -> None:  # fmt: skip
        """
        Args:
            config: after how many bytes and records; a new segment is enough as well.
            covered_end: a snapshot in the log has the effects of all records before this log position.
        """
        self._running, self._checkpointing, self._config = running, checkpointing, config
        self._covered_end = covered_end
        log = running.log
        self._files = Checkpoints(disk, log.report.store_id, lambda: log.durable_end, log.cipher)
        behind = log.report.bytes_read >= config.log.segment_bytes
        self._segments = -1 if behind else log.statistics().segments
        """How many segments there were at the last checkpoint. -1, which no number equals, if a start had to
        read a segment or more: otherwise a broker that is always killed before it begins another segment
        would read more at each start, and free nothing."""
        self._is_first = True
        """No checkpoint has been written in this life. Before the first one no segment is freed, however little is
        needed of it."""
        self._settled_bytes = self._committed_bytes = 0
        self._written_bytes = 0
        """Bytes of the last checkpoint, files and snapshot."""
        self._counted_from = log.end - log.report.records
        """Records are counted from this log position on; the last checkpoint, if it succeeded, covers those
        before."""
        self._warned = False
        """Whether it has been logged that the snapshot is too large; reset by the next one that is not."""
        self._last_error: type[Exception] | None = None
        """Why the last attempt failed. Logged once, because it is tried again all the time."""
        self._writing = trio.Lock()

    @property
    def due(self) -> bool:
        log = self._running.log
        statistics = log.statistics()
        if statistics.full:  # No further segment can be begun, and publishers wait for space.
            return self._is_worth_room(self._running.applied_end)
        settled = self._running.vhost.settling.appended_bytes - self._settled_bytes
        return (
            statistics.segments != self._segments
            or settled >= self._config.checkpoint_bytes
            or self._many_records(statistics.end, statistics.committed_bytes)
            or (self._is_first and log.would_free(self._running.applied_end))
        )

    def _many_records(self, end: int, committed_bytes: int) -> bool:
        """Whether there were enough records since the last checkpoint, and the log has grown by as many bytes
        as that checkpoint took: this one will take as many."""
        enough = end - self._counted_from >= self._config.checkpoint_records
        return enough and committed_bytes - self._committed_bytes >= self._written_bytes

    def _is_worth_room(self, start: int) -> bool:
        """Whether a snapshot that covers everything before this log position is worth its room: on a full
        disk it takes the space kept for the one that frees space."""
        log = self._running.log
        if not log.full or log.segment_spent or log.would_free(start):
            return True
        # The snapshot would also have the settlements that the log has no room for.
        return self._running.vhost.settling.would_free_segment(partial(log.would_free, start))

    async def run(self, interval_s: float) -> None:
        """Write checkpoints when they are due, until cancelled."""
        log, pause_s = self._running.log, interval_s
        while True:
            await trio.sleep(pause_s)
            pause_s, previous_s = interval_s, pause_s
            # Segments settled since the last look, and files that could not be removed then.
            await log.free()
            if self.due:
                fits = False
                try:
                    fits = await self.write()
                    self._last_error = None
                except (StoreError, OSError) as error:  # Not needed; the log goes on without it.
                    if type(error) is not self._last_error:
                        logger.warning(
                            "no checkpoint of vhost %s was written: %s",
                            self._running.vhost.name,
                            error,
                        )
                    self._last_error = type(error)
                if not fits:
                    pause_s = min(2 * previous_s, PAUSE_FACTOR_MAX * interval_s)

    async def write_last(self) -> None:
        """Write a checkpoint at the end of the broker, so that the next start reads less.

        Raises:
            StoreError, OSError: as `write`.
        """
        self._running.pump_once()  # What has just been settled is appended, even if no snapshot follows.
        await self.write()

    async def write(self) -> bool:
        """Write a checkpoint. Skipped, and logged, if its snapshot does not fit a segment; skipped if the
        disk is full and it would free nothing.

        Returns:
            Whether a segment can take its snapshot.
        Raises:
            StoreError, OSError: it could not be written; the previous checkpoint stays valid.
        """
        # The one at the broker's end may come while another is being written.
        async with self._writing:
            start = self._running.applied_end
            try:
                await self._write(start)
                self._warned = False
                return True
            except TooLarge as error:
                if not self._warned:
                    logger.warning(
                        "no checkpoint of vhost %s was written: its snapshot of %d bytes is more than a "
                        "segment can hold (%d). Until the broker has larger segments, no space is freed, "
                        "and a start reads everything since the last checkpoint",
                        self._running.vhost.name, error.size_bytes, error.limit_bytes,
                    )  # fmt: skip
                    self._warned = True
                return False
            finally:
                self._restart_counts(start)

    def _restart_counts(self, start: int) -> None:
        """Count from here, whatever became of this attempt: the next one is due when as much has happened
        again."""
        self._is_first = False
        statistics = self._running.log.statistics()
        self._segments, self._committed_bytes = statistics.segments, statistics.committed_bytes
        self._settled_bytes = self._running.vhost.settling.appended_bytes
        self._counted_from = start

    async def _write(self, start: int) -> None:
        """Write a checkpoint that covers everything before this log position. Raises TooLarge if its snapshot
        is more than a segment can take."""
        log = self._running.log
        if log.full and log.would_free(self._covered_end):
            await log.in_thread(self._files.drop_root, self._covered_end)
            await self._free()
            return
        if not self._is_worth_room(start):
            return
        self._written_bytes = 0
        marks = log.encoded_marks(start)
        taking = await self._write_changed(marks)
        snapshot = await self._append_snapshot(start, alone=taking is None)
        if snapshot is None:
            return
        # Not the snapshot's own position: it does not cover what was still on its way to the disk when it was
        # made, such as the settlements of dead letters.
        self._covered_end = start
        if taking is None:
            await log.in_thread(self._files.drop_root, start)
        else:
            root = Root(snapshot, start, taking.extra, marks)
            await log.in_thread(self._write_root, root)
        await self._free()

    async def _write_changed(self, marks: bytes) -> CheckpointRound | None:
        """Write the files of changed queues. None: the disk is full and had no room for them, so the snapshot
        has to do without."""
        log = self._running.log
        try:
            taking = await self._take()
            await log.in_thread(self._write_files, taking, marks)
        except StoreFull:
            return None
        except OSError as error:
            if error.errno in NO_SPACE and log.full:
                return None
            raise
        self._checkpointing.note_written(taking)
        self._written_bytes += sum(one.size_bytes for one in taking.changed)
        return taking

    async def _free(self) -> None:
        """Free the segments that nothing needs and that the last snapshot covers; no root refers to them any
        more."""
        running, log = self._running, self._running.log
        log.snapshot_at(self._covered_end)
        # Records that have become durable refer to their segments before the log frees any.
        running.pump_once()
        freed = await log.free()
        if freed:
            logger.info("vhost %s: segments %s were freed", running.vhost.name, freed)

    async def _take(self) -> CheckpointRound:
        """Encode the files to be written; everything in them is durable in the log when this returns. Raises
        StoreError."""
        running, log = self._running, self._running.log
        taking = self._checkpointing.begin_round()
        # Also if every queue is empty and has no file: their settlements may not have found room.
        await log.with_room(self._flush)
        while taking.has_more:
            taking.encode_some(running.applied_end, running.vhost.settling.last_position)
            await trio.lowlevel.checkpoint()
            await log.with_room(self._flush)
        # Whatever is settled in a file has to be settled in the log.
        await log.wait_durable(log.end - 1)
        return taking

    async def _append_snapshot(self, start: int, *, alone: bool) -> int | None:
        """Append a snapshot, make it durable and return its log position. None: the disk has become full, and
        the snapshot is not worth its room. Raises TooLarge."""
        running, log = self._running, self._running.log
        snapshot = running.vhost.snapshot(start, complete=alone)

        def append() -> range:
            running.pump_once()
            if not self._is_worth_room(start):
                return range(0)
            now_us, full = running.clock.now_us(), log.full
            drafts = running.vhost.drafts(snapshot, now_us, full=full)
            try:
                positions = append_twice(log, drafts)
            except TooLarge:  # Once is better than no checkpoints at all.
                positions = log.append_nowait(drafts)
            if alone:
                running.vhost.settling.note_covered(positions[-1])
            times = len(positions) // len(drafts)
            self._written_bytes += times * sum(draft.size_bytes for draft in drafts)
            return positions

        async with running.change_writer.gate.exclusive():
            await run_steps(snapshot.steps())
            positions = await log.with_room(append)
        if not positions:
            return None
        await log.wait_durable(positions[-1])
        return positions[0]

    def _flush(self) -> None:
        """Append everything settled or returned so far. Raises StoreError."""
        self._running.pump_once()
        refusal = self._running.vhost.settling.refusal
        if refusal is not None:
            raise refusal

    def _write_files(self, taking: CheckpointRound, marks: bytes) -> None:
        check = self._running.log.check
        self._files.write_all((one.checkpoint() for one in taking.changed), check)
        check()
        self._files.reserve_root(taking.extra, marks)

    def _write_root(self, root: Root) -> None:
        check = self._running.log.check
        self._files.write_root(root, check)
        check()
        names = [one.name for one in decode_extra(root.extra)]
        self._files.remove_others(names, check)
