"""Which segment to compact next, carrying forward what is left of it, and how fast.

    msgs.4  | dead | dead | LIVE | dead | dead |  ──>  its live records are appended again as `moved`,
                                                       then nothing refers to it and it is freed

The user of the log does the work, as only it knows what records mean. For each record of the segment that
`Log.to_compact` names, it finds which targets are still alive; waits for the budget; appends
`bodies.move(record, targets)`; waits until that is durable; refers to the new log position, and releases the old
one. At the end it calls `Log.free`; or `Log.put_off`, if the segment takes more than it was chosen for.
Acks, definitions and gaps are not moved, because a snapshot has their effects.

After a crash between the append of the new record and the freeing, recovery sees both, with the same lanes and
the same sequences. Whoever applies them must keep the later one; the same holds for a record moved twice.
Messages settled in between stay settled, because sequences do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import NamedTuple

BURST_S = 0.25
"""After a pause, the budget of this time may be used at once: publishers wait no longer than that."""
MARGIN = 1.5
"""Records take a little more where they are carried to, and live bytes may be estimates that leave out headers: so
there must be room for half as much again. Not on a full disk, where everything is counted before it is moved."""
FULL_SHARE = 0.9
"""On a full disk, freeing a tenth of a segment is worth it, because publishers wait. And a tenth of the room for
carried records is left to acks that come meanwhile."""
RECOUNT_FACTOR = 1.05
"""A segment that took more than expected is counted again once it has a twentieth less: counting has to read it."""
DEAD_IN_S_MIN = 60.0
"""On a full disk, what consumers will settle within this time is not carried forward: it would only slow them down."""
SAMPLE_S_MIN = 5.0
"""The least time between two samples of what is left of a segment, because acks come in bursts."""
YOUNGEST_KEPT, FULL_KEPT = 2, 1
"""Number of segments at the end that are not compacted: the last is being written, and much of the one before may
still be settled. On a full disk only the last one is left alone, as there is nothing to wait for."""


class Candidate(NamedTuple):
    """What compaction has to know of a segment."""

    positions: range
    """Its log positions."""
    size_bytes: int
    needed_bytes: float
    """About how much its live records take where they are carried to. 0: nothing is live, or it is not known."""
    movable: bool
    """It is sealed, and a snapshot has, or will have, all its effects."""
    dead_in_s: float
    """In about this time nothing of it will be needed, see `DeclineRate`."""
    cut: bool = False
    """Whether `needed_bytes` assumes that settled messages are cut out of records."""


class Chosen(NamedTuple):
    """The segment to be compacted next."""

    positions: range
    """Its log positions."""
    bytes_max: float
    """If more than this has to be carried forward, it is not worth it, or there is no room: call `Log.put_off`."""
    needed_bytes: float
    """How much is expected to be carried forward."""
    cut: bool = False
    """Whether that assumes that settled messages are cut out of records."""


def choose(
    candidates: Sequence[Candidate], share_max: float, room_bytes: float = inf, *, full: bool = False
) -> Chosen | None:  # fmt: skip
    """Return the segment to be compacted next; None if it is not worth it for any.

    The oldest one is chosen, because what is left of it after that long is not likely to go soon. On a full disk
    it is the one that frees most.

    Args:
        candidates: all segments of the log in order, whether or not a snapshot covers them.
        share_max: as in LogConfig.
        room_bytes: room for carried records. A compaction that runs out of room frees nothing, and uses up the
            room of one that would free something.
        full: whether the disk is full.
    """
    if full and share_max:
        return _choose_full(candidates, room_bytes)
    for one in candidates[:-YOUNGEST_KEPT]:
        bytes_max = min(MARGIN * share_max * one.size_bytes, room_bytes)
        if one.movable and 0 < MARGIN * one.needed_bytes < bytes_max:
            return Chosen(one.positions, bytes_max, one.needed_bytes, one.cut)
    return None


def _choose_full(candidates: Sequence[Candidate], room_bytes: float) -> Chosen | None:
    """As `choose` on a full disk. If too little was expected, `Log.put_off` says so, and the next one is chosen."""
    worth: list[tuple[float, Chosen]] = []
    for one in candidates[:-FULL_KEPT]:
        bytes_max = FULL_SHARE * min(one.size_bytes, room_bytes)
        if one.movable and 0 < one.needed_bytes < bytes_max and one.dead_in_s > DEAD_IN_S_MIN:
            freed_bytes = one.size_bytes - one.needed_bytes
            chosen = Chosen(one.positions, bytes_max, one.needed_bytes, one.cut)
            worth.append((freed_bytes, chosen))
    return max(worth, key=itemgetter(0))[1] if worth else None


class DeclineRate:
    """How fast the needed part of a segment decreases. Time is an argument."""

    __slots__ = ("_bytes_per_s", "_needed_bytes", "_sampled_s")

    def __init__(self) -> None:
        self._needed_bytes, self._sampled_s = 0.0, -inf
        self._bytes_per_s = 0.0

    def dead_in_s(self, needed_bytes: float, now_s: float) -> float:
        """Return in how many seconds nothing will be needed, at the pace between the last two samples; inf if there is
        no decrease, or only one sample. A call takes one if the last one is at least SAMPLE_S_MIN ago."""
        passed_s = now_s - self._sampled_s
        if passed_s >= SAMPLE_S_MIN:
            self._bytes_per_s = (self._needed_bytes - needed_bytes) / passed_s
            self._needed_bytes, self._sampled_s = needed_bytes, now_s
        return needed_bytes / self._bytes_per_s if self._bytes_per_s > 0 else inf


class Budget:
    """Bytes per second, as a token bucket. Time is an argument.

    In any `t` seconds at most `(t + BURST_S) * bytes_per_s` are taken, plus one record if that is larger than a
    burst: it is let through when the bucket is full, and paid for afterwards.
    """

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.burst_bytes = bytes_per_s * BURST_S
        self._tokens, self._filled_s = self.burst_bytes, now_s

    def wait_s(self, size_bytes: int, now_s: float) -> float:
        """Return how long to wait until `size_bytes` may be taken; 0: they may be taken at once."""
        self._fill(now_s)
        return max(0.0, min(size_bytes, self.burst_bytes) - self._tokens) / self._bytes_per_s

    def take(self, size_bytes: int, now_s: float) -> None:
        """Take `size_bytes`. To be called when `wait_s` returns 0, or its time is nearly over."""
        self._fill(now_s)
        self._tokens -= size_bytes

    def _fill(self, now_s: float) -> None:
        earned = max(0.0, now_s - self._filled_s) * self._bytes_per_s
        self._tokens = min(self.burst_bytes, self._tokens + earned)
        self._filled_s = max(self._filled_s, now_s)
