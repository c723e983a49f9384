"""Random logs with long runs of similar records: some that a start may read together, and some that it must not."""

from __future__ import annotations

from random import Random

from durable.log.bodies import encode_acks, encode_dead_lettered, encode_definitions
from durable.log.record import Draft, Kind, Target
from durable.protocol.properties import Properties, encode_properties
from durable.vhost.groups import GroupStretch, encode_group
from mesh.protocol.batch import Batch, batch_pieces

LANES = (7, 8, 9)
LIVES_US = (None, None, 60_000_000, 90_000_000, 1000)


class Traffic:
    """The log of one vhost, draft by draft.

    Sequences of lanes and publishers are mostly continuous; now and then they are not.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.time_us = 1_700_000_000_000_000
        self._next: dict[object, int] = {}
        self._epoch = 1

    def _taken(self, what: object, count: int) -> int:
        """Return the first of the next `count` sequences of a lane or a publisher."""
        if self.random.random() < 0.01:
            self._next[what] = self._next.get(what, 0) + self.random.randrange(1, 4)
        first = self._next.get(what, 0)
        self._next[what] = first + count
        return first

    def drafts(self, count: int) -> list[Draft]:
        """Return at least `count` drafts: each kind of traffic lasts for a while."""
        found: list[Draft] = []
        ways = [self.steady, self.steady, self.mixed, self.acked, self.odd]
        while len(found) < count:
            self._epoch += self.random.random() < 0.1  # Publishers are restarted.
            found += self.random.choice(ways)(self.random.choice((1, 5, 30, 100)))
        return found

    def steady(self, times: int) -> list[Draft]:
        """One publisher and one size, as of a program that waits for each confirm."""
        lanes, size, life, to = self._lanes(), self.random.randrange(60), self._life(), self._to()
        return [self._publish(b"p", lanes, 1, size, life, to=to) for _ in range(times)]

    def mixed(self, times: int) -> list[Draft]:
        """Several publishers and sizes, in batches."""
        lanes = [self._lanes() for _ in range(self.random.choice((1, 2)))]
        publishers, lives = self.random.choice((b"p", b"pq")), self.random.choices(LIVES_US, k=2)
        return [
            self._publish(
                bytes([self.random.choice(publishers)]), self.random.choice(lanes),
                self.random.choice((1, 1, 3)), self.random.randrange(90), self.random.choice(lives),
            )
            for _ in range(times)
        ]  # fmt: skip

    def acked(self, times: int) -> list[Draft]:
        """A message, then the settlement of one or several before it, over and over."""
        found: list[Draft] = []
        lane = self.random.choice(LANES)
        for _ in range(times):
            found.append(self._publish(b"p", (lane,), 1, 20, None))
            end = self._next[lane]
            start = max(0, end - self.random.choice((1, 1, 1, 1, 3)))
            ranges = {lane: [(start, end)]}
            if self.random.random() < 0.02:
                ranges[self.random.choice(LANES)] = [(0, 1), (start, end + 1)]
            returned: dict[int, list[tuple[int, int]]] = {}
            if self.random.random() < 0.02:
                returned = {lane: [(start, end)]}
                ranges = self.random.choice([{}, ranges])
            found.append(Draft(Kind.ACKS, encode_acks(ranges, returned), (), self._now()))
        return found

    def odd(self, _times: int) -> list[Draft]:
        """Records that are read by themselves, or that make no sense."""
        lane, random = self.random.choice(LANES), self.random
        time_us = self._now()
        return random.choice([
            [Draft(Kind.DEFINITIONS, encode_definitions([]), (), time_us)],
            [Draft(Kind.ACKS, encode_dead_lettered(lane, 0, 1, 1), (), time_us)],
            [Draft(Kind.PUBLISH, random.randbytes(random.choice((0, 3, 80))), (Target(lane, 5),), time_us)],
            [Draft(Kind.ACKS, random.randbytes(32), (), time_us)],
            [self._group(lane)],
            [self._publish(b"p", (lane,), 2, 9, None, headers=True) for _ in range(20)],
            [self._publish(b"c", (lane,), 1, 9, 5, kind=Kind.CAPTURE) for _ in range(40)],
            [self._senseless(lane) for _ in range(20)],
            self._absurd(lane),
            self._torn_stretch(lane),
        ])  # fmt: skip

    def _now(self) -> int:
        if self.random.random() < 0.01:  # The clock is set.
            self.time_us += self.random.randrange(-100_000, 3_000_000)
        self.time_us += self.random.randrange(400)
        return self.time_us

    def _life(self) -> int | None:
        return self.random.choice(LIVES_US)

    def _to(self) -> tuple[str, bytes]:
        """Exchange and routing key."""
        return self.random.choice(("", "", "e")), b"key"[: self.random.randrange(4)]

    def _lanes(self) -> tuple[int, ...]:
        return tuple(self.random.sample(LANES, self.random.choice((1, 1, 1, 2))))

    def _batch(
        self, publisher: bytes, count: int, size: int, life: int | None, *, headers: bool = False,
        to: tuple[str, bytes] | None = None,
    ) -> Batch:  # fmt: skip
        exchange, key = to or self._to()
        pieces, _ = batch_pieces(
            publisher * 16, self._epoch, self._taken(publisher, count), 0, key, [bytes(size)] * count,
            shared_headers=encode_properties(Properties(exchange, ttl_us=life)),
            message_headers=[b"\x80"] * count if headers else None,
        )  # fmt: skip
        return Batch(b"".join(pieces))

    def _publish(
        self, publisher: bytes, lanes: tuple[int, ...], count: int, size: int, life: int | None, *,
        kind: Kind = Kind.PUBLISH, headers: bool = False, to: tuple[str, bytes] | None = None,
    ) -> Draft:  # fmt: skip
        batch = self._batch(publisher, count, size, life, headers=headers, to=to)
        targets = tuple(Target(lane, self._taken(lane, count)) for lane in lanes)
        return Draft(kind, batch.raw(), targets, self._now())

    def _group(self, lane: int) -> Draft:
        body = encode_group([self._batch(b"p", 2, 8, None) for _ in range(3)], None)
        return Draft(
            Kind.PUBLISH, body, (Target(lane, self._taken(lane, 6)),), self._now(), grouped=True
        )

    def _senseless(self, lane: int) -> Draft:
        """A batch that is valid except for its properties."""
        pieces, _ = batch_pieces(
            b"s" * 16, 1, self._taken(b"s", 1), 0, b"", [b"x"], shared_headers=b"\xc1"
        )
        return Draft(
            Kind.PUBLISH, b"".join(pieces), (Target(lane, self._taken(lane, 1)),), self._now()
        )

    def _absurd(self, lane: int) -> list[Draft]:
        """Records as no broker writes them: sequences, times or expiries that are too large."""
        sequence, time_us, life = self.random.choice(
            [(1 << 63, 5, None), (5, (1 << 64) - 1, None), (5, (1 << 63) - 1, 60_000_000)]
        )
        return [
            Draft(
                Kind.PUBLISH, self._batch(b"a", 1, 4, life).raw(), (Target(lane, sequence + at),),
                time_us,
            )
            for at in range(20)
        ]  # fmt: skip

    def _torn_stretch(self, lane: int) -> list[Draft]:
        """The first of two records of a stretch, followed by other records instead of the second."""
        batches = [self._batch(b"p", 1, 8, None) for _ in range(3)]
        stretch = GroupStretch(batches[0].base_sequence, 4, 2)
        body = encode_group(batches, None, stretch)
        target = Target(lane, self._taken(lane, 3))
        draft = Draft(Kind.PUBLISH, body, (target,), self._now(), grouped=True, spread=True)
        return [draft, *self.steady(30)]
