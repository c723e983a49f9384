"""Logs for tests: small segments, everything in one thread, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from random import Random
from typing import Any

import trio

from durable.errors import StoreBusy, StoreFull
from durable.log.bodies import encode_acks, encode_definitions
from durable.log.config import LogConfig
from durable.log.disk import Disk
from durable.log.encryption import Encryption
from durable.log.record import Draft, Kind, Record, Target
from durable.log.recovery import FindStart
from durable.log.series import one_by_one
from durable.log.store import Store, open_store
from mesh.protocol.batch import Batch, batch_pieces
from security.keyring import Keyring, NetworkKeyring

PUBLISHER, STORE_ID = b"p" * 16, b"s" * 16
SMALL = LogConfig(segment_bytes=4096, reserve_bytes=512, free_bytes_min=0, commit_bytes_max=2048)
LARGE = LogConfig(segment_bytes=1 << 16, reserve_bytes=0, free_bytes_min=0)
"""One segment holds all that most tests write."""

NEW_SECRET, OLD_SECRET = b"n" * 32, b"o" * 32


def encryption(
    *secrets: bytes, keyring: Keyring | None = None, encrypt: bool = True, cluster: str = "broker"
) -> Encryption:
    """Return a store's encryption, with these generations of a network secret; its random bytes never change."""
    keyring = keyring or NetworkKeyring(secrets or [NEW_SECRET])
    return Encryption(keyring, cluster, encrypt, random_bytes=Random(1).randbytes)


def batch(number: int, size_bytes: int = 40) -> bytes:
    """Return a batch of one message, which begins with its number."""
    body = number.to_bytes(8, "little") + bytes(size_bytes - 8)
    return b"".join(batch_pieces(PUBLISHER, 1, number, 0, b"t", [body])[0])


def following(
    parts: Iterable[tuple[bytes, Sequence[bytes], Sequence[bytes] | None]], sequence: int, *,
    epoch: int = 1, time_us: int = 0, holes: Iterable[int] = repeat(0),
) -> list[Batch]:  # fmt: skip
    """Return a batch for each (key, payloads, headers); `holes` has how many sequences are left out before each."""
    batches: list[Batch] = []
    for (key, payloads, headers), hole in zip(parts, holes, strict=False):
        sequence += hole
        pieces, _ = batch_pieces(
            PUBLISHER, epoch, sequence, time_us, key, payloads, message_headers=headers
        )
        batches.append(Batch(b"".join(pieces)))
        sequence += len(payloads)
    return batches


def publish(number: int, size_bytes: int = 40) -> Draft:
    return Draft(Kind.PUBLISH, batch(number, size_bytes), (Target(7, number),), 1000 + number)


def acks(queue: int, start: int, end: int) -> Draft:
    return Draft(Kind.ACKS, encode_acks({queue: [(start, end)]}))


def definitions(value: object) -> Draft:
    return Draft(Kind.DEFINITIONS, encode_definitions(value))


class PlainLog:
    """A store driven step by step: does without trio what the trio shell does."""

    def __init__(
        self, disk: Disk, config: LogConfig = SMALL, *, start: int | FindStart = 0,
        visit: Callable[[Record], object] | None = None, store_id: bytes = STORE_ID,
        encryption: Encryption | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.store: Store = open_store(
            disk, config, new_store_id=store_id, now_us=0, clock=lambda: 0.0, start=start,
            visit=None if visit is None else one_by_one(visit), encryption=encryption,
        )  # fmt: skip
        self.committer, self.report = self.store.committer, self.store.report
        self.make_segment()

    def make_segment(self) -> None:
        placer = self.committer.placer
        number = None if self.committer.stopped else placer.wanted_segment()
        if number is not None:
            try:
                self.store.make_segment(number, carrier_missing=placer.carrier_missing)
            except StoreFull as error:
                placer.segment_refused(error.free_bytes)
            else:
                placer.segment_made()

    def append(self, *drafts: Draft) -> range:
        try:
            return self.committer.append(drafts)
        except StoreBusy:
            self.commit()
            return self.committer.append(drafts)
        finally:
            self.make_segment()

    def commit(self) -> None:
        """Commit everything that has been appended."""
        while (commit := self.committer.begin(0.0)) is not None:
            try:
                self.store.carry_out(commit)
            except StoreFull:
                raise
            except OSError as error:
                self.committer.failed(str(error))
                raise
            self.committer.done()

    def write(self, *drafts: Draft) -> range:
        """Append and commit."""
        positions = self.append(*drafts)
        self.commit()
        return positions

    def records(self, position: int = 0) -> list[Record]:
        return list(self.store.reader.records(position, self.committer.durable_end))

    def contents(self) -> dict[int, tuple[int, bytes]]:
        """Return (kind, body) by log position."""
        return {one.position: (one.kind, bytes(one.body)) for one in self.records()}

    def close(self) -> None:
        self.store.close()


async def inline(call: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False) -> Any:
    """Stand in for `trio.to_thread.run_sync`, without a thread."""
    await trio.lowlevel.checkpoint()
    return call(*args)


class Gate:
    """Stands in for `trio.to_thread.run_sync`: calls run at once, but return only while `open` is set."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.open.set()

    async def __call__(
        self, call: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False
    ) -> Any:
        result = call(*args)
        await self.open.wait()
        return result
