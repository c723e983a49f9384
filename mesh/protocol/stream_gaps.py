"""Losses in the streams of one subscription: the last sequence of each stream, and so what is missing.

Every drop, at the publisher or here, leaves a gap in the sequence of a stream (publisher, topic), which is
reported with the next messages taken of that stream. A note of drops that comes before the first message of
a stream sets the sequence from which the gap is counted. A publisher with more topics than it keeps begins
a forgotten topic again under a new epoch; what is missing at the end of the old epoch is reported with the
first messages of the new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .batch import Batch
from .latest import Latest

StreamKey = tuple[bytes, str]
"""Publisher, topic."""
STREAMS_MAX = 100_000
"""Most (publisher, topic) pairs whose last sequence one subscription remembers: about 1 KB each."""

EPOCHS_MAX = 8
"""Most epochs of one stream whose losses are counted separately."""


@dataclass(slots=True, eq=False)
class Epoch:
    """One epoch of a stream, as far as it is known here."""

    epoch: int
    expected: int
    """The sequence after the last message taken."""
    end: int
    """The sequence after the last message known to exist."""
    missed: int = 0
    """Messages missing in earlier epochs, to be reported with the next message."""
    waiting: int = 0
    """Messages of this epoch that wait in the inbox."""
    waiting_end: int = 0
    """The sequence after the last of them."""
    forgotten: bool = False
    """Not counted separately any more: what was missing, and what is dropped from now on, is reported with a
    later epoch."""

    @property
    def missing(self) -> int:
        """Messages that are missing if no more of this epoch arrive, those of earlier epochs included."""
        return self.missed + max(0, self.end - self.expected - self.waiting)


class Streams:
    """Streams of one subscription. Of more than `STREAMS_MAX` it forgets the one idle for longest."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: Latest[StreamKey, list[Epoch]] = Latest(STREAMS_MAX)

    def keys(self) -> list[StreamKey]:
        return list(self._epochs)

    def note_batch(self, batch: Batch) -> Epoch:
        """Note that the batch's messages exist, so that they count as lost if they are never taken; return their
        epoch."""
        key = (batch.publisher, batch.topic)
        epochs = self._epochs.get(key)
        if epochs is None:
            epochs = self._epochs[key] = []
        last = epochs[-1] if epochs else None
        if last is None or batch.epoch > last.epoch:
            last = Epoch(batch.epoch, batch.base_sequence, batch.next_sequence)
            epochs.append(last)
            if len(epochs) > EPOCHS_MAX:
                missing = _forget_first(epochs)
                epochs[0].missed += missing
        elif batch.epoch < last.epoch:  # A note of a later epoch's losses, sent first, was faster.
            known = next((one for one in epochs if one.epoch == batch.epoch), None)
            last = known or Epoch(batch.epoch, 0, 0, forgotten=True)
        last.end = max(last.end, batch.next_sequence)
        return last

    def note_taken(self, batch: Batch, sequence: int, end: int) -> int:
        """Note that messages [`sequence`, `end`) of the batch are taken; return how many are missing just before."""
        key = (batch.publisher, batch.topic)
        if key not in self._epochs:  # Forgotten, so no gap is known.
            self.note_batch(batch)
        epochs = self._epochs[key]
        lost = 0
        while epochs[0].epoch < batch.epoch and len(epochs) > 1:
            lost += _forget_first(epochs)
        current = epochs[0]
        if current.epoch == batch.epoch:
            lost += current.missed + max(0, sequence - current.expected)
            current.missed, current.expected = 0, end
        self._epochs.move_to_end(key)
        return lost

    def note_missed(self, batch: Batch, count: int) -> None:
        """Note that `count` of the batch's messages were dropped, which waited when their epoch was forgotten: a
        later epoch reports them, because gaps in their own are not counted any more."""
        later = self._epochs.get((batch.publisher, batch.topic))
        if later is not None:
            later[0].missed += count

    def continue_from(self, predecessor: Streams, key: StreamKey) -> None:
        """Continue a stream of `predecessor`, another subscription's, whose next messages arrive here.

        That subscription itself reports what is missing between messages that it has delivered or will
        deliver; this one reports what is missing after those.
        """
        epochs = predecessor._epochs[key]
        waiting_at = [at for at, one in enumerate(epochs) if one.waiting]
        first = waiting_at[-1] if waiting_at else 0
        remaining = [Epoch(one.epoch, one.expected, one.end, one.missed) for one in epochs[first:]]
        if waiting_at:
            remaining[0].expected, remaining[0].missed = epochs[first].waiting_end, 0
        self._epochs[key] = remaining


def _forget_first(epochs: list[Epoch]) -> int:
    """Stop counting the oldest epoch separately, and return how many of its messages are missing. Others of them
    may still wait."""
    first = epochs.pop(0)
    first.forgotten = True
    return first.missing
