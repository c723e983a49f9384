"""Snapshots and checkpoints of a running vhost, and the way back from them at its start.

In one moment: whatever is settled is appended, then a snapshot. Then, with nobody waiting for it: every
queue that has changed is encoded, some at a time, each as of the records that have been applied by
then; all of that becomes durable, the files are written, the root last. Only after that the log may
give up segments.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

import trio

from mesh.errors import TooLarge

from ..errors import StoreError
from ..log.checkpoints import Checkpoint, Checkpoints, Root
from ..log.cipher import Cipher
from ..log.disk import Disk
from ..vhost.checkpointing import Checkpointing, Taking, decode_extra, load, recall
from ..vhost.replay import Replay
from .hosted import Hosted

logger = logging.getLogger("durable")


def begin_at(
    disk: Disk, store_id: bytes, cipher: Cipher | None, replay: Replay, *, end: int | None
) -> int:
    """Load what the checkpoints know; the log position from which the rest has to be read.

    Called in a worker thread, once the directory is locked, before anything is read. 0: from the
    front, and all that is known is what was settled, which holds whatever else does not.

    Args:
        end: where the log ends: it has been read, and what was loaded before that did not hold.
            What is ahead of it is removed. None: nobody knows yet.
    """
    files = Checkpoints(disk, store_id, lambda: 1 << 64 if end is None else end, cipher)
    root, registry = files.read_root(), replay.registry
    returns: dict[int, int] = {}
    if root is not None and end is None:
        try:
            named = decode_extra(bytes(root.extra))
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
            return root.start
    for ack in files.acks():
        with suppress(ValueError, TypeError, KeyError):  # Not needed, as ever.
            returns |= recall(registry, ack)
    replay.begins(0, 0, returns, files.reach)
    return 0


class Round(NamedTuple):
    """One checkpoint of everything, ready to be written to files."""

    start: int
    """The snapshot knows what records before this log position did."""
    root: Root
    taking: Taking


class Checkpointer:
    """Writes them, every so many bytes and at the end."""

    def __init__(
        self, hosted: Hosted, disk: Disk, checkpointing: Checkpointing, *, bytes_max: int
    ) -> None:
        """
        Args:
            bytes_max: of settlements; a segment of anything is enough as well.
        """
        self._hosted, self._checkpointing, self._bytes_max = hosted, checkpointing, bytes_max
        log = hosted.log
        self._files = Checkpoints(disk, log.report.store_id, lambda: log.durable_end, log.cipher)
        self._segments = log.statistics().segments
        self._settled = 0
        self._warned = False
        """That the snapshot is too large, since there was one that was not."""
        self._trouble: type[Exception] | None = None
        """Why there was none the last time: said once, for it is tried again all the time."""
        self._unwritten: Round | None = None
        """Its files could not be written. While the disk is full it is tried again as it is: a further
        snapshot would be taken from the reserve, which is for what gives space back."""
        self._writing = trio.Lock()

    @property
    def due(self) -> bool:
        log = self._hosted.log
        statistics = log.statistics()
        settled = self._hosted.vhost.settling.appended_bytes - self._settled
        if statistics.segments != self._segments or settled >= self._bytes_max:
            return True
        # On a full disk there is no further segment to wait for, and somebody waits for space.
        return statistics.full and log.would_free

    async def run(self, look_s: float) -> None:
        """Until cancelled, or the store has failed."""
        while True:
            await trio.sleep(look_s)
            if self.due:
                try:
                    await self.write()
                    self._trouble = None
                except (StoreError, OSError) as error:  # Not needed; the log goes on without.
                    if type(error) is not self._trouble:
                        logger.warning("no checkpoint of %s: %s", self._hosted.vhost.name, error)
                    self._trouble = type(error)

    async def write_last(self) -> None:
        """At the end, so that the next start reads less; on a full disk only if that gives space back.

        Raises:
            StoreError, OSError: as `write`.
        """
        log = self._hosted.log
        if not log.statistics().full or log.would_free:  # Else it would take the next one's place.
            await self.write()

    async def write(self) -> None:
        """One of everything, unless a segment is too small for its snapshot, which is logged.

        Raises:
            StoreError, OSError: it could not be written; what was there before holds.
        """
        async with self._writing:  # The last one of all may come while another is under way.
            try:
                await self._write()
                self._warned = False
            except TooLarge as error:
                self._begun()  # Else it would be due at once, and no smaller.
                if not self._warned:
                    logger.warning(
                        "no checkpoint of %s: its snapshot of %d bytes is more than a segment takes "
                        "(%d). Until the broker has a larger --segment-size no space is given back, "
                        "and a start reads all since the last one",
                        self._hosted.vhost.name, error.size_bytes, error.limit_bytes,
                    )  # fmt: skip
                    self._warned = True

    def _begun(self) -> None:
        """The next one is due when as much has happened again."""
        self._segments = self._hosted.log.statistics().segments
        self._settled = self._hosted.vhost.settling.appended_bytes

    async def _write(self) -> None:
        """Raises TooLarge: the snapshot is more than a segment takes."""
        hosted, log = self._hosted, self._hosted.log
        if self._unwritten is None or not log.statistics().full:
            self._unwritten = None
            self._unwritten = await self._take()
        start, root, taking = self._unwritten
        await trio.to_thread.run_sync(self._write_files, taking.changed, root)
        self._unwritten = None
        self._checkpointing.written(taking)
        # Not its own position: what was still on its way to the disk then, such as the settlement of
        # what was dead-lettered, it does not know.
        log.snapshot_at(start)
        hosted.turn()  # Whatever is durable has told the log what it needs, before that gives up any.
        freed = await log.free()
        if freed:
            logger.info("%s: segments %s are free", hosted.vhost.name, freed)

    async def _take(self) -> Round:
        """With all that the log has to have of it; durable. Raises TooLarge."""
        hosted, log = self._hosted, self._hosted.log

        def append_snapshot() -> range:
            self._flush()
            return log.append_nowait(hosted.vhost.snapshot(hosted.clock.now_us()))

        positions = await log.with_room(append_snapshot)
        start, taking = hosted.applied_end, self._checkpointing.begin()
        self._begun()
        while taking.more:
            await log.with_room(self._flush)
            taking.take(hosted.applied_end, hosted.vhost.settling.last_position)
            await trio.lowlevel.checkpoint()
        await log.durable(log.end - 1)  # What is settled in a file has to be so in the log.
        return Round(start, Root(positions[0], start, taking.extra), taking)

    def _flush(self) -> None:
        """Append everything settled or returned so far. Raises StoreError."""
        self._hosted.turn()
        refusal = self._hosted.vhost.settling.refusal
        if refusal is not None:
            raise refusal

    def _write_files(self, changed: list[Checkpoint], root: Root) -> None:
        self._files.write_all(changed)
        self._files.write_root(root)
        self._files.remove_others([one.name for one in decode_extra(bytes(root.extra))])
