"""Which sequences each publisher has stored, so that nothing is stored twice and nothing refused is
confirmed.

For each publisher: the latest epoch, the next sequence, and the holes before it, which are sequences that
were refused or routed nowhere. A message from a hole that is sent again is tried again; any other before
`next` is a duplicate. Both can be rebuilt from the log alone, because a hole is where the stored sequences
jump.

If a publisher stops at a refusal, everything refused after it forms one hole, however much it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from mesh.protocol.batch import NUMBERS_END

from ..errors import DurableError, PublisherFenced, SequenceLost

HOLES_MAX = 1000
"""Holes remembered per publisher. Sequences before the oldest of them raise SequenceLost when they are sent
again: they are never reported as stored."""


class KnownRange(NamedTuple):
    """Sequences [`first`, `end`), all of them stored or all of them not."""

    first: int
    end: int
    stored: bool


@dataclass(slots=True, eq=False)
class Publisher:
    id: bytes
    epoch: int
    next: int = 0
    """All sequences from here on are new."""
    floor: int = 0
    """Nothing is known of the sequences before this one."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    stops: bool = False
    """Whether, after the first refusal on a connection, everything behind it is refused, too."""
    refusal: DurableError | None = None
    """The first refusal of the connection, if `stops`."""
    confirmed: int = 0
    """Every sequence before this one is decided: stored durably, or refused."""
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    """(log position, sequence): every sequence before it is decided once that position is durable."""
    cluster: str = ""
    """The cluster it belongs to. Empty if it has not connected since the start: the log does not say."""

    def known_ranges(self, first: int, end: int) -> Iterator[KnownRange]:
        """Yield [`first`, `end`) in pieces; new sequences and holes are not stored.

        Raises:
            SequenceLost: `first` is so old that it is not known any more.
        """
        if first < self.floor:
            raise SequenceLost(first, self.floor)
        # A new batch lies behind up to a thousand holes, and every batch comes here: search, do not scan.
        near = max(0, bisect_right(self.holes, (first, first)) - 1)
        for at in range(near, len(self.holes)):
            start, stop = self.holes[at]
            if stop <= first:
                continue
            if start >= end:
                break
            if first < start:
                yield KnownRange(first, start, stored=True)
            yield KnownRange(max(first, start), min(end, stop), stored=False)
            first = min(end, stop)
        if first < min(end, self.next):
            yield KnownRange(first, min(end, self.next), stored=True)
            first = min(end, self.next)
        if first < end:
            yield KnownRange(first, end, stored=False)

    def note_stored(self, first: int, end: int) -> None:
        """Note that these sequences have been appended."""
        if first > self.next:
            self._add_hole(self.next, first)
        elif first < self.next:
            self._fill(first, end)
            # Entries that wait for an earlier commit counted these sequences as refused, which is not true
            # any more.
            self.waiting = deque((position, min(one, first)) for position, one in self.waiting)
        self.next = max(self.next, end)
        # They were refused, and decided as such; now they wait for the disk like any others.
        self.confirmed = min(self.confirmed, first)

    def note_refused(self, end: int) -> None:
        """Note that new sequences before `end` were refused; they form a hole, in case they are sent again."""
        if end > self.next:
            self._add_hole(self.next, end)
            self.next = end

    def _add_hole(self, start: int, end: int) -> None:
        holes = self.holes
        if holes and holes[-1][1] == start:
            start = holes.pop()[0]
        holes.append((start, end))
        self._trim_holes()

    def _fill(self, first: int, end: int) -> None:
        # At a start this is called for each dead letter, because it keeps the sequence of its original: do not go
        # through a thousand holes.
        holes = self.holes
        low, high = bisect_left(holes, (first, first)), bisect_left(holes, (end, end))
        if low and holes[low - 1][1] > first:
            low -= 1
        if low >= high:
            return
        start, stop = holes[low][0], holes[high - 1][1]
        left = [(start, first)] if start < first else []
        right = [(end, stop)] if end < stop else []
        holes[low:high] = left + right
        self._trim_holes()

    def _trim_holes(self) -> None:
        over = len(self.holes) - HOLES_MAX
        if over > 0:
            self.floor = self.holes[over - 1][1]
            del self.holes[:over]

    def forget_before(self, sequence: int) -> None:
        """Forget everything before `sequence`: the publisher knows its outcome and will not send it again."""
        self.floor = max(self.floor, min(sequence, self.next))
        self._fill(0, self.floor)

    def note_decided(self, position: int | None, sequence: int) -> None:
        """Note that every sequence before `sequence` is decided once log position `position` is durable
        (None: now)."""
        if self.waiting:
            last_position, last_sequence = self.waiting[-1]
            position = max(position or 0, last_position)
            sequence = max(sequence, last_sequence)
        if position is None:
            self.confirmed = max(self.confirmed, sequence)
        else:
            self.waiting.append((position, sequence))

    def committed(self, end: int) -> bool:
        """All log positions before `end` are durable. Return whether that decided more sequences."""
        waiting, before = self.waiting, self.confirmed
        while waiting and waiting[0][0] < end:
            self.confirmed = max(self.confirmed, waiting.popleft()[1])
        return self.confirmed > before


class Publishers:
    """The publishers of one vhost. Above `publishers_max`, the cluster that has the most forgets its least
    recently used one. So a cluster that opens ever new publishers crowds out its own, and those whose
    cluster is not known."""

    def __init__(self, publishers_max: int) -> None:
        self._max = publishers_max
        self._by_id: OrderedDict[bytes, Publisher] = OrderedDict()
        self._by_cluster: dict[str, OrderedDict[bytes, Publisher]] = {}
        """The same publishers by cluster; no entry is empty."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Publisher]:
        return iter(self._by_id.values())

    def open(
        self, publisher_id: bytes, epoch: int, oldest: int, *, stops: bool = False,
        cluster: str = "",
    ) -> Publisher:  # fmt: skip
        """Return the entry of a publisher of this cluster that has connected; `oldest` is its first
        unconfirmed sequence.

        Raises:
            PublisherFenced: a later epoch has been seen, so this publisher has been replaced.
        """
        publisher = self.get_or_add(publisher_id, epoch, cluster)
        if epoch < publisher.epoch:
            raise PublisherFenced(publisher_id.hex(), epoch, publisher.epoch)
        if not publisher.next:
            publisher.next = publisher.floor = publisher.confirmed = oldest
        publisher.forget_before(oldest)
        publisher.stops, publisher.refusal = stops, None
        return publisher

    def next_epoch(self, publisher_id: bytes, now_us: int, step: int) -> int:
        """Return an epoch for a publisher that begins, later than any that is known of it.

        Args:
            now_us: the clock, so that epochs rise also for publishers that have been forgotten.
            step: random. An epoch under which nothing is stored yet is not in the log, but must not be
                given again after a restart: the messages of one publisher would pass for those of the
                other.
        Raises:
            PublisherFenced: its latest epoch, which a client chose, leaves no later one.
        """
        former = self._by_id.get(publisher_id)
        latest = former.epoch if former else -1
        epoch = max(latest + 1, now_us * 1000) + step
        if epoch >= NUMBERS_END:
            raise PublisherFenced(publisher_id.hex(), latest, latest)
        return epoch

    def check_current(self, publisher: Publisher) -> None:
        """Raises PublisherFenced if another connection of the publisher has taken over from the one with this
        entry."""
        latest = self._by_id.get(publisher.id)
        if latest is None:  # It was forgotten; remember it again.
            self._place(publisher, publisher.cluster)
        elif latest is not publisher:
            raise PublisherFenced(publisher.id.hex(), publisher.epoch, latest.epoch)

    def get_or_add(self, publisher_id: bytes, epoch: int, cluster: str = "") -> Publisher:
        """Return the entry of a publisher; a new one if `epoch` is later than the known one."""
        publisher = self._by_id.get(publisher_id)
        if publisher is None or publisher.epoch < epoch:
            publisher = Publisher(publisher_id, epoch)
        self._place(publisher, cluster)
        self._trim(publisher)
        return publisher

    def _place(self, publisher: Publisher, cluster: str) -> None:
        """Make it the most recently used entry of this cluster, in place of any other entry with its id."""
        before = self._by_id.get(publisher.id)
        if before is publisher and before.cluster == cluster:
            self._by_id.move_to_end(publisher.id)
            self._by_cluster[cluster].move_to_end(publisher.id)
            return
        if before is not None:
            self._forget(before)
        publisher.cluster = cluster
        self._by_id[publisher.id] = publisher
        self._by_cluster.setdefault(cluster, OrderedDict())[publisher.id] = publisher

    def _forget(self, publisher: Publisher) -> None:
        del self._by_id[publisher.id]
        group = self._by_cluster[publisher.cluster]
        del group[publisher.id]
        if not group:
            del self._by_cluster[publisher.cluster]

    def note_recovered(self, publisher_id: bytes, epoch: int, first: int, end: int) -> None:
        """Note that a durable record has these sequences.

        All records of a publisher that no snapshot mentions come here, so sequences before its first
        record are a hole, too. Sequences are clipped to NUMBERS_END: logs of earlier releases may have
        ones that are refused now, and the sequence behind the very last one could not be packed.
        """
        # Consecutive records mostly belong to one publisher: look at the last one first.
        publisher = next(reversed(self._by_id.values()), None)
        if publisher is None or publisher.id != publisher_id or publisher.epoch != epoch:
            publisher = self.get_or_add(publisher_id, epoch)
        if publisher.epoch != epoch:
            return
        if end > NUMBERS_END:
            first, end = min(first, NUMBERS_END), NUMBERS_END
        publisher.note_stored(first, end)
        publisher.confirmed = publisher.next

    def restore(self, entry: tuple[bytes, int, int, int, list[tuple[int, int]]]) -> None:
        """Take an entry of a snapshot. To be called before later records are applied."""
        publisher_id, epoch, next_sequence, floor, holes = entry
        publisher = self.get_or_add(publisher_id, epoch)
        if publisher.epoch != epoch:
            return
        publisher.next = publisher.confirmed = min(next_sequence, NUMBERS_END)
        publisher.floor = min(floor, NUMBERS_END)
        publisher.holes = [
            (start, min(end, NUMBERS_END)) for start, end in holes if start < NUMBERS_END
        ]

    def entries(self) -> list[tuple[bytes, int, int, int, list[tuple[int, int]]]]:
        """The entries that a snapshot has."""
        return [(one.id, one.epoch, one.next, one.floor, one.holes) for one in self]

    def _trim(self, kept: Publisher) -> None:
        """Forget the surplus, but neither `kept` nor publishers with sequences that wait for the disk."""
        over = len(self._by_id) - self._max
        for _ in range(over):
            most = max(self._by_cluster.values(), key=len)
            oldest = islice(most.values(), over)
            publisher = next((one for one in oldest if one is not kept and not one.waiting), None)
            if publisher is None:
                return
            self._forget(publisher)
