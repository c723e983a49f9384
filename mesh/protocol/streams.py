"""What one subscription knows of the streams it gets: what came last of each, and so what is missing.

Every drop, at the publisher or here, leaves a hole in the sequence of a stream (publisher, topic), which
is told with the next messages that are taken of it. Drops before the first message of a stream set the
point from which the hole is measured. A publisher of more topics than it keeps begins those it had
forgotten under a new epoch: what is missing at the end of the last one is told then.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from .batch import Batch

Key = tuple[bytes, str]
"""Publisher, topic."""
STREAMS_MAX = 100_000
"""(publisher, topic) pairs whose last sequence one subscription remembers: about 1 KB each."""

EPOCHS_MAX = 8
"""Of one stream, that are told apart."""


@dataclass(slots=True, eq=False)
class Epoch:
    """What is known of one stream's epoch."""

    epoch: int
    expected: int
    """The sequence behind what was taken last."""
    end: int
    """Behind all that is known to exist."""
    missed: int = 0
    """Of earlier epochs, to be told with the next message."""
    waiting: int = 0
    """Messages of it that wait here."""
    waiting_end: int = 0
    """Behind the last of them."""
    forgotten: bool = False
    """What was missing is told with a later epoch; so is what is dropped from now on."""

    @property
    def missing(self) -> int:
        """When nothing more of it will come."""
        return self.missed + max(0, self.end - self.expected - self.waiting)


class Streams:
    """Those of one subscription; of more than `STREAMS_MAX` it forgets what was taken from longest ago."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: OrderedDict[Key, list[Epoch]] = OrderedDict()

    def keys(self) -> list[Key]:
        return list(self._epochs)

    def note(self, batch: Batch) -> Epoch:
        """Its messages and all that follow exist: should they be missing, that counts as a loss."""
        key = (batch.publisher, batch.topic)
        epochs = self._epochs.get(key)
        if epochs is None:
            epochs = self._epochs[key] = []
            if len(self._epochs) > STREAMS_MAX:
                self._epochs.popitem(last=False)
        last = epochs[-1] if epochs else None
        if last is None or batch.epoch > last.epoch:
            last = Epoch(batch.epoch, batch.base_sequence, batch.next_sequence)
            epochs.append(last)
            if len(epochs) > EPOCHS_MAX:
                missing = _forget_first(epochs)
                epochs[0].missed += missing
        elif batch.epoch < last.epoch:  # A note of losses, which goes first, was ahead of it.
            known = next((one for one in epochs if one.epoch == batch.epoch), None)
            last = known or Epoch(batch.epoch, 0, 0, forgotten=True)
        last.end = max(last.end, batch.next_sequence)
        return last

    def taken(self, batch: Batch, sequence: int, end: int) -> int:
        """Messages [`sequence`, `end`) of it are being taken; how many are missing just before."""
        key = (batch.publisher, batch.topic)
        if key not in self._epochs:  # Forgotten: then none are.
            self.note(batch)
        epochs = self._epochs[key]
        lost = 0
        while epochs[0].epoch < batch.epoch and len(epochs) > 1:
            lost += _forget_first(epochs)
        now = epochs[0]
        if now.epoch == batch.epoch:
            lost += now.missed + max(0, sequence - now.expected)
            now.missed, now.expected = 0, end
        self._epochs.move_to_end(key)
        return lost

    def missed(self, batch: Batch, count: int) -> None:
        """So many of its messages were dropped, which waited when their epoch was forgotten: a later one
        tells, as nobody will look for them."""
        later = self._epochs.get((batch.publisher, batch.topic))
        if later is not None:
            later[0].missed += count

    def go_on(self, before: Streams, key: Key) -> None:
        """What comes of a stream from now on comes here, no longer to the subscription of `before`.

        What is missing between messages that it has delivered, or will, it tells itself; what is missing
        behind them is told here.
        """
        epochs = before._epochs[key]
        wait = [at for at, one in enumerate(epochs) if one.waiting]
        first = wait[-1] if wait else 0
        left = [Epoch(one.epoch, one.expected, one.end, one.missed) for one in epochs[first:]]
        if wait:
            left[0].expected, left[0].missed = epochs[first].waiting_end, 0
        self._epochs[key] = left
        self._epochs.move_to_end(key)
        if len(self._epochs) > STREAMS_MAX:
            self._epochs.popitem(last=False)


def _forget_first(epochs: list[Epoch]) -> int:
    """What is missing of the oldest, which is told apart no longer; some of it may wait still."""
    first = epochs.pop(0)
    first.forgotten = True
    return first.missing
