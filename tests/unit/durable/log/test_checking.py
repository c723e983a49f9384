"""One checksum over many records finds what their own find."""

from __future__ import annotations

from array import array
from itertools import accumulate
from random import Random

import pytest

from durable.log.checking import all_intact
from durable.log.record import HEADER_BYTES, Draft, Kind, Target, encode_record, store_seed
from tests.logs import STORE_ID

SEED = store_seed(STORE_ID)
RESTS_AT = 20
"""Where a header has the checksum of the rest."""


def written(bodies: list[bytes], *, targets: int = 1) -> list[bytes]:
    chain, records = 0, []
    for number, body in enumerate(bodies):
        draft = Draft(Kind.PUBLISH, body, (Target(7, number),) * targets, 1000 + number)
        pieces, chain = encode_record(
            draft, seed=SEED, epoch=1, position=1 + number, chain=chain, unsynced=0
        )
        records.append(b"".join(pieces))
    return records


def are_whole(records: list[bytes]) -> bool:
    """As series.py asks: of one size with a range."""
    ends: range | list[int] = [*accumulate(map(len, records))]
    if len({*map(len, records)}) == 1:
        ends = range(ends[0], ends[-1] + 1, ends[0])
    rest_checksums = [int.from_bytes(one[RESTS_AT : RESTS_AT + 4], "little") for one in records]
    return all_intact(memoryview(b"".join(records)), ends, array("I", rest_checksums))


SIZES = {
    "one size": [40] * 30,
    "any size": [40, 8, 8, 9, 1000, 100, 17, 40],
    "one record": [40],
    "some parts": [40, 3000, 200, 3000, 3000, 20, 9000, 10],
    "parts of one size": [3000, 3000, 3000, 3000],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_they_are_whole_until_any_bit_is_another(sizes: list[int]) -> None:
    random = Random(1)
    records = written([random.randbytes(size) for size in sizes])
    assert are_whole(records)
    for which, record in enumerate(records):
        # The header of the very first one is known to be valid.
        bits = range(0 if which else 8 * HEADER_BYTES, 8 * len(record))
        for bit in random.sample(bits, min(len(bits), 1000)):
            damaged = bytearray(record)
            damaged[bit // 8] ^= 1 << bit % 8
            assert not are_whole([*records[:which], bytes(damaged), *records[which + 1 :]])


def test_two_that_changed_places_are_whole_where_they_stand() -> None:
    """That they are not in order, chain and log position say."""
    records = written([b"%d" % number for number in range(20)])
    records[3], records[9] = records[9], records[3]
    assert are_whole(records)


def test_of_another_store_they_are_not_whole() -> None:
    records = written([bytes(40)] * 4)
    pieces, _ = encode_record(
        Draft(Kind.PUBLISH, bytes(40), (Target(7, 1),), 1000), seed=store_seed(b"t" * 16), epoch=1,
        position=2, chain=0, unsynced=0,
    )  # fmt: skip
    assert not are_whole([records[0], b"".join(pieces), *records[2:]])


@pytest.mark.parametrize("sizes", [[0, 0, 0], [40, 0, 40]], ids=["all", "one"])
def test_with_nothing_but_a_header_they_are_whole_too(sizes: list[int]) -> None:
    records = written([bytes(size) for size in sizes], targets=0)
    assert min(map(len, records)) == HEADER_BYTES
    assert are_whole(records)
    damaged = bytearray(records[1])
    damaged[40] ^= 1
    assert not are_whole([records[0], bytes(damaged), records[2]])
