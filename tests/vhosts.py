"""A vhost over a log that is a list: nothing is durable before `commit`, refusals on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from durable.broker.hosted import Hosted
from durable.log.record import HEADER_BYTES, Draft, Record, encode_record, read_header
from durable.protocol.properties import Properties, encode_properties
from durable.vhost.bodies import Bodies
from durable.vhost.changes import Change
from durable.vhost.publishers import Publisher, Publishers
from durable.vhost.registry import Registry
from durable.vhost.replay import Replay
from durable.vhost.vhost import Vhost
from mesh.errors import TooLarge
from mesh.protocol.batch import Batch, batch_pieces

PUBLISHER = b"p" * 16


def as_record(draft: Draft, position: int, unsynced: int = 0) -> Record:
    pieces, _ = encode_record(draft, seed=0, epoch=1, position=position, chain=0, unsynced=unsynced)
    data = b"".join(pieces)
    header = read_header(data, 0, 0)
    assert header is not None, "what was encoded is a record"
    return Record(header, data[HEADER_BYTES:])


class PlainStore:
    """A `Store`; `records` by log position."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.end = self.durable_end = 0
        self.append_bytes_max = self.reserve_bytes = 1 << 30
        self.references: Counter[int] = Counter()
        self.refusal: Exception | None = None
        self.hurried = False
        """Whether somebody waits for what was appended last."""

    def hurry(self) -> None:
        self.hurried = True

    def append_nowait(self, drafts: Sequence[Draft], *, hurry: bool = True) -> range:
        if self.refusal is not None:
            raise self.refusal
        size_bytes = sum(draft.size_bytes for draft in drafts)
        if size_bytes > self.append_bytes_max:
            raise TooLarge("what is appended at once", size_bytes, self.append_bytes_max)
        first = self.end
        for draft in drafts:
            unsynced = self.end - self.durable_end
            self.records[self.end] = as_record(draft, self.end, unsynced)
            self.end += 1
        self.hurried = hurry
        return range(first, self.end)

    def refer(self, position: int, count: int = 1, size_bytes: int = 0) -> None:
        self.references[position] += count

    def refer_each(self, positions: range, size_bytes: int) -> None:
        self.references.update(positions)

    def release_each(self, positions: range, size_bytes: int) -> None:
        for position in positions:
            assert self.references[position], f"{position} released too often"
            self.references[position] -= 1

    def needed(self) -> dict[int, int]:
        return {position: count for position, count in self.references.items() if count}


class PlainVhost:
    """What the broker does with a vhost, step by step."""

    def __init__(self, records: Sequence[Record] = (), store: PlainStore | None = None) -> None:
        self.store = store or PlainStore()
        registry, publishers = Registry(), Publishers(1000)
        self.replay = Replay(registry, publishers)
        for record in records:
            self.replay(record)
        self.replay.finish(self.store, 0)
        self.vhost = Vhost("/", registry, publishers, self.store, Bodies(1 << 20))
        self.registry, self.publishers = registry, publishers

    def restarted(self, without: Sequence[int] = ()) -> PlainVhost:
        """What a restart makes of the durable records, but for those at some positions."""
        store = type(self.store)()
        store.end = store.durable_end = self.store.durable_end
        store.records = {
            at: one
            for at, one in self.store.records.items()
            if at < store.end and at not in without
        }
        return PlainVhost(list(store.records.values()), store)

    def change(self, *changes: Change) -> None:
        self.vhost.change(changes, 0)

    def commit(self) -> list[Publisher]:
        self.store.durable_end = self.store.end
        return self.vhost.committed(self.store.end, 0)

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
    """Everybody may publish."""


def snapshot_of(vhost: Vhost) -> list[Draft]:
    """All of it in one turn."""
    snapshot = vhost.snapshot()
    for _ in snapshot.steps():
        pass
    return vhost.drafts(snapshot, 0)


async def flushed(hosted: Hosted) -> None:
    """Return when everything settled so far is on disk."""
    settling = hosted.vhost.settling
    flush = settling.next_flush()
    hosted.wake()
    while settling.durable < flush:
        await hosted.settled.wait()
