"""A vhost over a log that is a list: nothing is durable before `commit`, and appends can be refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from durable.broker.running_vhost import RunningVhost
from durable.broker.stream_check import StreamCheck
from durable.definitions import StreamDefinition
from durable.log.checkpoints import Checkpoint, Root
from durable.log.record import HEADER_BYTES, Draft, Record, encode_record, read_header
from durable.log.report import LogGap
from durable.log.segments import Segments, Tally
from durable.protocol.properties import Properties, encode_properties
from durable.queues.consumers import Consumer
from durable.queues.lane import Lane
from durable.queues.queue import Queue
from durable.vhost.bodies import Bodies
from durable.vhost.changes import Change
from durable.vhost.checkpointing import decode_extra, load, load_ack
from durable.vhost.publishers import Publisher, Publishers
from durable.vhost.registry import Registry
from durable.vhost.replay import Replay
from durable.vhost.vhost import Vhost
from mesh.errors import TooLarge
from mesh.protocol.batch import Batch, batch_pieces

PUBLISHER = b"p" * 16


class AnyStreams(StreamCheck):
    """The check of streams where none is refused."""

    def __init__(self, streams: Iterable[StreamDefinition] = ()) -> None: ...

    def steps(self) -> Generator[None]:
        yield

    def now(self) -> None: ...


def as_record(draft: Draft, position: int, unsynced: int = 0) -> Record:
    pieces, _ = encode_record(draft, seed=0, epoch=1, position=position, chain=0, unsynced=unsynced)
    data = b"".join(pieces)
    header = read_header(data, 0, 0)
    assert header is not None, "what was encoded is a record"
    return Record(header, data[HEADER_BYTES:])


class PlainTally(Tally):
    """A tally in which each record is in a segment of its own."""

    def __init__(self) -> None:
        super().__init__(Segments())

    def count_each(self, positions: range, size_bytes: int) -> None:
        self.references.update(positions)


class PlainStore:
    """A `Store` in memory; `records` are by log position."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.end = self.durable_end = 0
        self.append_bytes_max = self.reserve_bytes = 1 << 30
        self.references: Counter[int] = Counter()
        self.refusal: Exception | None = None
        self.hurried = False
        """Whether the last append was one that somebody waits for."""

    def hurry(self) -> None:
        self.hurried = True

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        if self.refusal is not None:
            raise self.refusal
        size_bytes = sum(draft.size_bytes for draft in drafts)
        if size_bytes > self.append_bytes_max:
            raise TooLarge("an append", size_bytes, self.append_bytes_max)
        first = self.end
        for draft in drafts:
            unsynced = self.end - self.durable_end
            self.records[self.end] = as_record(draft, self.end, unsynced)
            self.end += 1
        self.hurried = hurry
        return range(first, self.end)

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        self.references[position] += count

    def release(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        raise AssertionError("each is released by itself")

    def in_same_segment(self, low: int, high: int) -> bool:
        """Return False: each record is then released by itself."""
        return False

    def refer_each(self, positions: range, size_bytes: int) -> None:
        self.references.update(positions)

    def release_each(self, positions: range, size_bytes: int) -> None:
        for position in positions:
            assert self.references[position], f"{position} released too often"
            self.references[position] -= 1

    def tally(self) -> Tally:
        return PlainTally()

    def gaps(self) -> list[LogGap]:
        """Return what is missing after the first record; what is before it was freed."""
        first = min(self.records, default=self.end)
        return [LogGap(at, at + 1) for at in range(first, self.end) if at not in self.records]

    def needed(self) -> dict[int, int]:
        return {position: count for position, count in self.references.items() if count}


@dataclass
class Files:
    """The checkpoints beside the log, which `log.checkpoints.Checkpoints` writes."""

    queues: dict[int, Checkpoint] = field(default_factory=dict)
    """By their first lane."""
    root: Root | None = None

    def load(self, replay: Replay) -> int:
        """Load them as `broker.checkpoints.load_checkpoints` does; return the log position from which to read records."""
        reach = max((one.position for one in self.queues.values()), default=0)
        returns: dict[int, int] = {}
        if self.root is None:
            for one in self.queues.values():
                returns |= load_ack(replay.registry, one.ack)
            replay.resume_from(0, 0, returns, reach)
            return 0
        for named in decode_extra(bytes(self.root.extra)):
            returns |= load(replay.registry, self.queues[named.lane])
        replay.resume_from(self.root.start, self.root.snapshot, returns, reach)
        return self.root.start


class PlainVhost:
    """A vhost with which tests do step by step what the broker does."""

    def __init__(
        self, records: Sequence[Record] = (), store: PlainStore | None = None, *,
        files: Files | None = None, now_us: int = 0, held_bytes_max: int = 1 << 30,
    ) -> None:  # fmt: skip
        self.store, self.files = store or PlainStore(), files or Files()
        registry, publishers = Registry(), Publishers(1000)
        self.replay = Replay(registry, publishers)
        start = self.files.load(self.replay)
        for record in records:
            if record.position >= start:
                self.replay(record)
        self.replay.finish(self.store, now_us, self.store.gaps())
        self.vhost = Vhost("/", registry, publishers, self.store, Bodies(1 << 20, held_bytes_max))
        self.registry, self.publishers = registry, publishers

    def restarted(
        self, without: Container[int] = (), *, kept: int | None = None, now_us: int = 0
    ) -> PlainVhost:
        """Return the vhost after a restart with the durable records, except those at positions `without`.

        Args:
            kept: records before this log position remain, even if not durable; by default only durable ones do.
        """
        store = type(self.store)()
        store.end = store.durable_end = self.store.durable_end if kept is None else kept
        store.records = {
            at: one
            for at, one in self.store.records.items()
            if at < store.end and at not in without
        }
        return PlainVhost(list(store.records.values()), store, files=self.files, now_us=now_us)

    def change(self, *changes: Change) -> None:
        self.vhost.change(changes, 0)

    def commit(self) -> list[Publisher]:
        self.store.durable_end = self.store.end
        decided = self.vhost.intake.take_decided(self.store.end)
        self.vhost.committed(self.store.end, 0)
        return decided

    def flush(self) -> None:
        self.vhost.settling.flush(0)
        self.commit()


def make_batch(
    first: int, payloads: Sequence[bytes], *, key: str = "q", exchange: str = "",
    publisher: bytes = PUBLISHER, epoch: int = 1, headers: Sequence[bytes] | None = None,
    properties: Properties | None = None,
) -> Batch:  # fmt: skip
    shared = encode_properties(properties or Properties(exchange))
    pieces, _ = batch_pieces(
        publisher, epoch, first, 0, key.encode(), payloads, shared_headers=shared,
        message_headers=headers,
    )  # fmt: skip
    return Batch(b"".join(pieces))


def anybody(_exchange: str) -> None:
    """Allow everybody to publish."""


def snapshot_of(vhost: Vhost) -> list[Draft]:
    """Return a whole snapshot, made in one turn."""
    snapshot = vhost.snapshot()
    for _ in snapshot.steps():
        pass
    return vhost.drafts(snapshot, 0)


async def batch_at(running: RunningVhost, lane: Lane, sequence: int) -> tuple[Batch, int] | None:
    """Return the batch with this message and the sequence of its first message, or None if it cannot be read."""
    found = await running.batch_reader.read(lane, sequence, sequence + 1)
    return found[0] if found else None


def settle_ready(queue: Queue, outcome: str, now_us: int = 0) -> None:
    """All that is ready, by a consumer that then leaves."""
    consumer = Consumer("c", prefetch=0, prefetch_bytes=0)
    queue.subscribe(consumer)
    queue.take(0)
    queue.settle(consumer, 0, consumer.next_tag, outcome)
    queue.unsubscribe(consumer, now_us)


async def flushed(running: RunningVhost) -> None:
    """Return when everything settled so far is on disk."""
    settling = running.vhost.settling
    flush = settling.next_flush()
    running.wake()
    while settling.durable_flush < flush:
        await running.settlements_durable.wait()
