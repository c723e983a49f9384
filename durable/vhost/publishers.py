"""Who has published what already: so that nothing is stored twice, and nothing refused is confirmed.

Per publisher the latest epoch, the next sequence, and the holes before it: sequences that were
refused or went nowhere. What comes again from a hole is tried again; anything else before `next` is
a duplicate. Both can be rebuilt from the log alone, because a hole is where stored sequences jump.

A publisher that stops at a refusal makes one hole of all that it is refused, however much that is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from mesh.protocol.batch import NUMBERS_END

from ..errors import DurableError, PublisherFenced, SequenceLost

HOLES_MAX = 1000
"""Holes remembered per publisher. Those before are too old to be asked for: a publisher that sends
them again is told so, and never that they were stored."""


class Known(NamedTuple):
    """What is known of sequences [`first`, `end`): all of them alike."""

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
    """Before this one nothing is known any more."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    stops: bool = False
    """At the first refusal of a connection: all that comes behind it is refused, too."""
    refusal: DurableError | None = None
    """That one."""
    confirmed: int = 0
    """Everything before it is decided: stored durably, or refused."""
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    """(log position, sequence): everything before the sequence is decided once that is durable."""
    cluster: str = ""
    """Whose it is. Empty: it has not connected since the start, and the log does not say."""

    def known(self, first: int, end: int) -> Iterator[Known]:
        """[`first`, `end`) in pieces: new ones and holes are not stored.

        Raises:
            SequenceLost: it is too old for us to know.
        """
        if first < self.floor:
            raise SequenceLost(first, self.floor)
        # What is new comes behind a thousand holes, and each of its batches comes here.
        near = max(0, bisect_right(self.holes, (first, first)) - 1)
        for at in range(near, len(self.holes)):
            start, stop = self.holes[at]
            if stop <= first:
                continue
            if start >= end:
                break
            if first < start:
                yield Known(first, start, stored=True)
            yield Known(max(first, start), min(end, stop), stored=False)
            first = min(end, stop)
        if first < min(end, self.next):
            yield Known(first, min(end, self.next), stored=True)
            first = min(end, self.next)
        if first < end:
            yield Known(first, end, stored=False)

    def stored(self, first: int, end: int) -> None:
        """They have been appended."""
        if first > self.next:
            self._add_hole(self.next, first)
        elif first < self.next:
            self._fill(first, end)
            # What waits for an earlier commit counted on these as refused.
            self.waiting = deque((position, min(one, first)) for position, one in self.waiting)
        self.next = max(self.next, end)
        # Refused before, and decided so: now it waits for the disk like any other.
        self.confirmed = min(self.confirmed, first)

    def refused(self, end: int) -> None:
        """What is new before `end` was not, and will not be unless it comes again."""
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
        kept: list[tuple[int, int]] = []
        for start, stop in self.holes:
            if start < min(stop, first):
                kept.append((start, min(stop, first)))
            if max(start, end) < stop:
                kept.append((max(start, end), stop))
        self.holes = kept
        self._trim_holes()

    def _trim_holes(self) -> None:
        over = len(self.holes) - HOLES_MAX
        if over > 0:
            self.floor = self.holes[over - 1][1]
            del self.holes[:over]

    def forget_before(self, sequence: int) -> None:
        """The publisher knows what became of everything before: it will not ask again."""
        self.floor = max(self.floor, min(sequence, self.next))
        self._fill(0, self.floor)

    def decided(self, position: int | None, sequence: int) -> None:
        """Everything before `sequence` is, once log position `position` is durable (None: now)."""
        if self.waiting:
            last_position, last_sequence = self.waiting[-1]
            position = max(position or 0, last_position)
            sequence = max(sequence, last_sequence)
        if position is None:
            self.confirmed = max(self.confirmed, sequence)
        else:
            self.waiting.append((position, sequence))

    def committed(self, end: int) -> bool:
        """All log positions before `end` are durable; whether that decided anything."""
        waiting, before = self.waiting, self.confirmed
        while waiting and waiting[0][0] < end:
            self.confirmed = max(self.confirmed, waiting.popleft()[1])
        return self.confirmed > before


class Publishers:
    """Of one vhost. Over `publishers_max` the cluster that has most forgets its least recently used:
    whoever comes with ever new ones crowds out its own, and those that are not known to be anybody's."""

    def __init__(self, publishers_max: int) -> None:
        self._max = publishers_max
        self._all: OrderedDict[bytes, Publisher] = OrderedDict()
        self._of: dict[str, OrderedDict[bytes, Publisher]] = {}
        """The same by cluster; none is empty."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Publisher]:
        return iter(self._all.values())

    def open(
        self, publisher_id: bytes, epoch: int, oldest: int, *, stops: bool = False,
        cluster: str = "",
    ) -> Publisher:  # fmt: skip
        """A publisher of this cluster that has connected; `oldest`: its first sequence that is not
        confirmed.

        Raises:
            PublisherFenced: a later epoch has been seen: this one has been replaced.
        """
        publisher = self.seen(publisher_id, epoch, cluster)
        if epoch < publisher.epoch:
            raise PublisherFenced(publisher_id.hex(), epoch, publisher.epoch)
        if not publisher.next:
            publisher.next = publisher.floor = publisher.confirmed = oldest
        publisher.forget_before(oldest)
        publisher.stops, publisher.refusal = stops, None
        return publisher

    def next_epoch(self, publisher_id: bytes, now_us: int, step: int) -> int:
        """For one that begins: later than any that is known of it.

        Args:
            now_us: of those that have been forgotten, the later one has the later epoch, too.
            step: random. An epoch under which nothing is stored yet does not stand in the log, and must
                not be given again after a restart: what the one sends would pass for the other's.
        Raises:
            PublisherFenced: its latest one was given by somebody, and is the last that there is.
        """
        known = self._all.get(publisher_id)
        latest = known.epoch if known else -1
        epoch = max(latest + 1, now_us * 1000) + step
        if epoch >= NUMBERS_END:
            raise PublisherFenced(publisher_id.hex(), latest, latest)
        return epoch

    def check_current(self, publisher: Publisher) -> None:
        """Raises PublisherFenced: another connection of it has taken over from the one with this."""
        latest = self._all.get(publisher.id)
        if latest is None:  # It has been forgotten.
            self._place(publisher, publisher.cluster)
        elif latest is not publisher:
            raise PublisherFenced(publisher.id.hex(), publisher.epoch, latest.epoch)

    def seen(self, publisher_id: bytes, epoch: int, cluster: str = "") -> Publisher:
        """The entry of a publisher; begun anew when `epoch` is later than what is known."""
        publisher = self._all.get(publisher_id)
        if publisher is None or publisher.epoch < epoch:
            publisher = Publisher(publisher_id, epoch)
        self._place(publisher, cluster)
        self._trim(publisher)
        return publisher

    def _place(self, publisher: Publisher, cluster: str) -> None:
        """As the one of this cluster that was used last, instead of any other of its id."""
        before = self._all.get(publisher.id)
        if before is publisher and before.cluster == cluster:
            self._all.move_to_end(publisher.id)
            self._of[cluster].move_to_end(publisher.id)
            return
        if before is not None:
            self._forget(before)
        publisher.cluster = cluster
        self._all[publisher.id] = publisher
        self._of.setdefault(cluster, OrderedDict())[publisher.id] = publisher

    def _forget(self, publisher: Publisher) -> None:
        del self._all[publisher.id]
        its = self._of[publisher.cluster]
        del its[publisher.id]
        if not its:
            del self._of[publisher.cluster]

    def recovered(self, publisher_id: bytes, epoch: int, first: int, end: int) -> None:
        """A durable record has these sequences.

        A publisher of which no snapshot tells has all its records here: what is before the first
        one is a hole, too. Logs of earlier releases may have sequences that nobody accepts now; the
        one after the last of all could not be packed.
        """
        # Most often the one of the last time.
        publisher = next(reversed(self._all.values()), None)
        if publisher is None or publisher.id != publisher_id or publisher.epoch != epoch:
            publisher = self.seen(publisher_id, epoch)
        if publisher.epoch != epoch:
            return
        if end > NUMBERS_END:
            first, end = min(first, NUMBERS_END), NUMBERS_END
        publisher.stored(first, end)
        publisher.confirmed = publisher.next

    def restore(self, entry: tuple[bytes, int, int, int, list[tuple[int, int]]]) -> None:
        """From a snapshot, before any record after it is applied."""
        publisher_id, epoch, following, floor, holes = entry
        publisher = self.seen(publisher_id, epoch)
        if publisher.epoch != epoch:
            return
        publisher.next = publisher.confirmed = min(following, NUMBERS_END)
        publisher.floor = min(floor, NUMBERS_END)
        publisher.holes = [
            (start, min(end, NUMBERS_END)) for start, end in holes if start < NUMBERS_END
        ]

    def entries(self) -> list[tuple[bytes, int, int, int, list[tuple[int, int]]]]:
        """For a snapshot."""
        return [(one.id, one.epoch, one.next, one.floor, one.holes) for one in self]

    def _trim(self, kept: Publisher) -> None:
        """Forget those that are too many, but for `kept` and those that wait for the disk."""
        over = len(self._all) - self._max
        for _ in range(over):
            most = max(self._of.values(), key=len)
            oldest = islice(most.values(), over)
            publisher = next((one for one in oldest if one is not kept and not one.waiting), None)
            if publisher is None:
                return
            self._forget(publisher)
