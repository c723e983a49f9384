"""Which segment to make room in by carrying forward what is left of it, and how fast.

    msgs.4  | dead | dead | LIVE | dead | dead |  ──>  its live records are appended again as `moved`,
                                                       then nothing refers to it and it is freed

Whoever applies records does the work. For each record of the segment that `Log.to_compact` names: ask which
of its targets are still alive; wait for the budget; append `bodies.move(record, targets)`; wait until that is
durable; refer to the new position, release the old one. In the end call `Log.free`; or `Log.put_off`, where it
takes more than it was chosen for.
Acks, definitions and gaps are not moved: a snapshot has what they did.

After a crash between the new record and the freeing, recovery sees both: the same lanes, the same
sequences. Whoever applies them must keep the later one, and so must it when one was moved twice. What
has been settled in between stays settled: sequences do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import NamedTuple

BURST_S = 0.25
"""So much of the budget may be used at once after a rest: publishers wait no longer than that."""
OVER = 1.5
"""What is carried forward takes a little more than it did, and live bytes may be estimates that leave
out headers: there is to be room for half as much again, but on a full disk, where all is counted first."""
FULL_SHARE = 0.9
"""On a full disk a tenth of a segment is worth it, for publishers wait; and a tenth of the room there is for what is
carried forward is left to acks that come meanwhile."""
AGAIN = 1.05
"""What was more than expected is counted again when a twentieth less is left: each time it is read for that."""
GONE_S_MIN = 60.0
"""On a full disk what consumers will have settled by then is not carried forward: it would only slow them down."""
LOOK_S_MIN = 5.0
"""From one look at what is left to the next: acks come in bursts."""
YOUNGEST_KEPT, FULL_KEPT = 2, 1
"""The last segments are left alone: one is being written, of the other much may still be settled, but on a full
disk there is nothing to wait for."""


class Candidate(NamedTuple):
    """A segment, as far as compaction is concerned."""

    positions: range
    """Its log positions."""
    size_bytes: int
    needed_bytes: float
    """What is live takes so much where it is carried to, about. 0: nothing, or it is not known."""
    movable: bool
    """Sealed, and a snapshot knows all that it did, or will."""
    gone_s: float
    """In so much time nothing of it will be needed, see `Waning`."""
    cut: bool = False
    """Whether `needed_bytes` is that when settled messages are cut out of records."""


class Chosen(NamedTuple):
    """The segment to be compacted next."""

    positions: range
    """Its log positions."""
    bytes_max: float
    """With more than this carried forward it is not worth it, or there is no room: `Log.put_off`."""
    needed_bytes: float
    """What was expected to be carried forward."""
    cut: bool = False
    """Whether that is what is left when settled messages are cut out of records."""


def choose(
    candidates: Sequence[Candidate], share_max: float, room_bytes: float = inf, *, full: bool = False
) -> Chosen | None:  # fmt: skip
    """The segment to be compacted next; None: it would not be worth it for any.

    The oldest first: what has been there longest with little left of it is not going to go soon. On a full disk
    the one that frees most.

    Args:
        candidates: all segments of the log that a snapshot covers or not, in order.
        share_max: as in LogConfig.
        room_bytes: for what is carried forward: what does not end frees nothing, and takes the room of what would.
        full: whether the disk is.
    """
    if full and share_max:
        return _choose_full(candidates, room_bytes)
    for one in candidates[:-YOUNGEST_KEPT]:
        bytes_max = min(OVER * share_max * one.size_bytes, room_bytes)
        if one.movable and 0 < OVER * one.needed_bytes < bytes_max:
            return Chosen(one.positions, bytes_max, one.needed_bytes, one.cut)
    return None


def _choose_full(candidates: Sequence[Candidate], room_bytes: float) -> Chosen | None:
    """What is expected may be too little: then `Log.put_off` says so, and the next one is chosen."""
    worth: list[tuple[float, Chosen]] = []
    for one in candidates[:-FULL_KEPT]:
        bytes_max = FULL_SHARE * min(one.size_bytes, room_bytes)
        if one.movable and 0 < one.needed_bytes < bytes_max and one.gone_s > GONE_S_MIN:
            freed_bytes = one.size_bytes - one.needed_bytes
            chosen = Chosen(one.positions, bytes_max, one.needed_bytes, one.cut)
            worth.append((freed_bytes, chosen))
    return max(worth, key=itemgetter(0))[1] if worth else None


class Waning:
    """How fast what is needed of a segment becomes less. Time is an argument."""

    __slots__ = ("_bytes_per_s", "_looked_s", "_needed_bytes")

    def __init__(self) -> None:
        self._needed_bytes, self._looked_s = 0.0, -inf
        self._bytes_per_s = 0.0

    def gone_s(self, needed_bytes: float, now_s: float) -> float:
        """Look: when nothing will be, at the pace since the look before; inf: it does not become less, or that was none.
        A look too soon counts as none."""
        passed_s = now_s - self._looked_s
        if passed_s >= LOOK_S_MIN:
            self._bytes_per_s = (self._needed_bytes - needed_bytes) / passed_s
            self._needed_bytes, self._looked_s = needed_bytes, now_s
        return needed_bytes / self._bytes_per_s if self._bytes_per_s > 0 else inf


class Budget:
    """Bytes per second, as a bucket of tokens. Time is an argument.

    In any time of `t` seconds at most `(t + BURST_S) * bytes_per_s` are taken, and one record more
    if that is larger than a burst: it is let go when the bucket is full and paid for afterwards.
    """

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.burst_bytes = bytes_per_s * BURST_S
        self._tokens, self._at_s = self.burst_bytes, now_s

    def wait_s(self, size_bytes: int, now_s: float) -> float:
        """How long until so much may be taken; 0: at once."""
        self._fill(now_s)
        return max(0.0, min(size_bytes, self.burst_bytes) - self._tokens) / self._bytes_per_s

    def take(self, size_bytes: int, now_s: float) -> None:
        """To be called when `wait_s` says 0, or is as good as over."""
        self._fill(now_s)
        self._tokens -= size_bytes

    def _fill(self, now_s: float) -> None:
        earned = max(0.0, now_s - self._at_s) * self._bytes_per_s
        self._tokens = min(self.burst_bytes, self._tokens + earned)
        self._at_s = max(self._at_s, now_s)
