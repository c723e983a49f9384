"""Zenoh's floor: its bytes are those that a session of eclipse-zenoh 1.10.2 wrote, and reads.

What it was HEARD to write is without lengths, and cut behind a second message or the start of a payload.
The oracle of the last tests is that library itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from bench.comparison.serving import Serving, serving
from bench.comparison.throughput import introduce
from bench.processes import Role, Troupe
from bench.stream import faults, run_phase
from bench.systems import SYSTEMS, zenoh_wire
from bench.systems.raw_frames import varint
from bench.systems.zenoh_batches import Batches, BatchFrames, numbers
from tests.unit.bench.test_raw_frames import PAYLOADS, SIZE_BYTES, assert_cut_anywhere, cut_all

HEARD_INIT_ACK = bytes.fromhex(
    "e109f16e43d191e4f151338e91570aab7760a20a00c03130a0fd5820b20a42abdd3e27a0050c079f3fe50cdcb1827396"
    "b13ae33c684a5dd382c7c6969abfa7f9e5c0514988c2210d81c20e93eca0858096c9ac3f8f90a4ec052701"
)
HEARD_DECLARATIONS = bytes.fromhex(
    "a5f0f19d133100df01210842020700"
    "02106e43d191e4f151338e91570aab7760a20201137463702f3132372e302e302e313a313734343700"
    "03010010773d59039a31f3209aca6faaaacd6aa10200"
    "9e2108200100086d657373616765739e2108420101be0021081a"
)
HEARD_PUTS = bytes.fromhex("25cbebaa45 9d01210d01054242424242 9d01210d01054343434343")
HEARD_PIECE = bytes.fromhex("e6d9a2c268 02 9d01210d01c09a0c 41414141")
KEEP_ALIVE = bytes.fromhex("0100 04")
OWN_ID = bytes(range(16))
HEAD = zenoh_wire.put_head(1, SIZE_BYTES)
MESSAGES, REQUESTS = 3000, 300
MISSING = SYSTEMS["zenoh"].missing()
BETWEEN = pytest.mark.parametrize(
    ("near", "far"),
    [
        pytest.param(*names, marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING)))
        for names in (("zenoh-raw", "zenoh"), ("zenoh", "zenoh-raw"))
    ],
)
"""A client that dials, and one that listens."""


def puts(batches: Batches, payloads: Sequence[bytes] = PAYLOADS) -> bytes:
    return b"".join(batches.puts(zenoh_wire.put_head(1, len(payloads[0])), payloads))


def split(stream: bytes) -> list[bytes]:
    """Batches, with their lengths."""
    found = list[bytes]()
    while stream:
        end = 2 + int.from_bytes(stream[:2], "little")
        found.append(stream[:end])
        stream = stream[end:]
    return found


def test_the_handshake_is_what_the_specification_has() -> None:
    """Version 9, a peer, 16 bytes of identity; a lease of a day, number 0, the cookie that came."""
    assert zenoh_wire.init(OWN_ID) == bytes.fromhex("1300 01 09 f1") + OWN_ID
    assert zenoh_wire.init_ack(OWN_ID, b"c") == bytes.fromhex("1500 21 09 f1") + OWN_ID + b"\x01c"
    assert zenoh_wire.open_syn(b"cookie") == bytes.fromhex("0c00 42 80a305 00 06") + b"cookie"
    assert zenoh_wire.open_ack() == bytes.fromhex("0500 62 80a305 00")


def test_an_answer_that_zenoh_gave_is_read() -> None:
    """Of a socket whose segments make 48 KB the longest batch; behind the cookie are its extensions."""
    batch_bytes_max, cookie = zenoh_wire.read_init(HEARD_INIT_ACK)
    assert (batch_bytes_max, len(cookie)) == (49_152, 49)
    assert HEARD_INIT_ACK.endswith(cookie + bytes.fromhex("81c20e93eca0858096c9ac3f8f90a4ec052701"))


def test_without_sizes_a_batch_is_as_long_as_one_may_be() -> None:
    assert zenoh_wire.read_init(zenoh_wire.init(OWN_ID)[2:]) == (65_535, b"")
    with pytest.raises(ConnectionError, match="version 8"):
        zenoh_wire.read_init(b"\x01\x08\xf1" + OWN_ID)


def test_declarations_are_those_of_zenoh() -> None:
    said = zenoh_wire.subscribed("messages") + zenoh_wire.FINAL
    assert HEARD_DECLARATIONS.endswith(said)
    assert zenoh_wire.find_key(HEARD_DECLARATIONS, "messages") == 1
    assert zenoh_wire.find_key(HEARD_DECLARATIONS, "message") is None


def test_a_key_is_found_by_all_of_its_name() -> None:
    said = zenoh_wire.key_declared("replies10", 7) + zenoh_wire.key_declared("replies1", 8)
    assert zenoh_wire.find_key(said, "replies1") == 8
    assert zenoh_wire.find_key(said, "replies10") == 7
    assert zenoh_wire.find_key(said, "replies") is None


def test_puts_are_those_of_zenoh() -> None:
    """But for the number of the batch."""
    (batch,) = split(puts(Batches(65_535), [b"B" * 5, b"C" * 5]))
    assert batch == bytes.fromhex("1800 25 00") + HEARD_PUTS[5:]
    found = cut_all(
        BatchFrames(HEARD_PUTS[5:11], 5, print), [len(HEARD_PUTS).to_bytes(2, "little"), HEARD_PUTS]
    )
    assert found == [b"B" * 5, b"C" * 5]


@pytest.mark.parametrize("batch_bytes_max", [20, 30, 60, 110, 65_535])
def test_what_fits_shares_a_batch_and_what_does_not_is_cut(batch_bytes_max: int) -> None:
    """Batches have numbers that follow one another, and none is too long."""
    batches, others = Batches(batch_bytes_max), list[bytes]()
    stream = batches.frame(zenoh_wire.FINAL) + puts(batches)
    said, lengths = zip(*((one[3], len(one)) for one in split(stream)), strict=True)
    assert said == tuple(range(len(said)))
    assert max(lengths) <= batch_bytes_max
    stream += KEEP_ALIVE
    assert_cut_anywhere(lambda: BatchFrames(HEAD, SIZE_BYTES, others.append), stream)
    assert set(others) == {b"\x25\x00" + zenoh_wire.FINAL, b"\x04"}


def test_the_first_piece_and_the_last_say_so() -> None:
    """Of 6 + 40 bytes, where 27 - 2 - 1 - 4 - 1 = 19 are room for pieces."""
    first, middle, last = split(puts(Batches(27), PAYLOADS[:1]))
    assert first == bytes.fromhex("1600 e6 00 02") + HEAD + PAYLOADS[0][:13]
    assert middle == bytes.fromhex("1500 66 01") + PAYLOADS[0][13:32]
    assert last == bytes.fromhex("0a00 26 02") + PAYLOADS[0][32:]


def test_a_first_piece_is_that_of_zenoh() -> None:
    """But for the number, and its length of 65,478 bytes: where segments are long, Zenoh takes a bit less."""
    first = split(puts(Batches(65_535), [b"A" * 200_000]))[0]
    assert first.startswith(b"\xe6\x00" + HEARD_PIECE[5:], 2)


def test_numbers_are_varints_that_begin_again_after_28_bits() -> None:
    assert list(islice(numbers(), 20_000)) == [varint(number) for number in range(20_000)]
    last = islice(numbers((1 << 21) - 1), 127, 130)
    assert list(last) == [b"\xff\xff\xff\x7f", b"\x00", b"\x01"]


@pytest.mark.parametrize("rest", [HEAD, b"x" * len(HEAD + PAYLOADS[0])])
def test_what_comes_behind_a_delivery_and_is_none_is_refused(rest: bytes) -> None:
    frames = BatchFrames(HEAD, SIZE_BYTES, print)
    with pytest.raises(ValueError, match="not a delivery"):
        frames.cut(zenoh_wire.batch(0x25, b"\x00" + HEAD + PAYLOADS[0] + rest))
    with pytest.raises(ValueError, match="in pieces"):
        frames.cut(zenoh_wire.batch(0x26, b"\x00" + HEAD + PAYLOADS[0] + rest))


def play(place: Serving, role: str, system: str, size_bytes: int) -> Role:
    settings = {"connections": 2, "rate_per_s": 1000, "count": REQUESTS, "warm_count": 0}
    return place.start(role, system=system, size_bytes=size_bytes, **settings)


@pytest.mark.slow
@BETWEEN
@pytest.mark.parametrize("size_bytes", [16, 1024])
def test_what_one_puts_the_other_receives(near: str, far: str, size_bytes: int) -> None:
    """One producer, one consumer: many payloads to a batch, every one compared."""
    with Troupe() as troupe, serving(troupe, SYSTEMS[near], connections=1) as place:
        consumer = play(place, "consumer", far, size_bytes)
        producer = play(place, "producer", near, size_bytes)
        introduce(producer, consumer)
        (report,) = run_phase(producer, [consumer], start=0, count=MESSAGES).reports
        place.end(producer, consumer)
    assert report["received"] == MESSAGES
    assert faults(report) == 0


@pytest.mark.slow
@BETWEEN
@pytest.mark.parametrize("size_bytes", [16, 1024, 100_000])
def test_what_one_asks_the_other_answers(near: str, far: str, size_bytes: int) -> None:
    """Two sessions that dial, with a topic of their own each; one that listens. Large ones go in pieces."""
    with Troupe() as troupe, serving(troupe, SYSTEMS[near], connections=2) as place:
        responder = play(place, "responder", far, size_bytes)
        requester = play(place, "requester", near, size_bytes)
        requester.tell("run")
        assert requester.hear()["sent"] == REQUESTS
        requester.tell("save", file=f"{place.place.directory}/samples.npz")
        answer = requester.hear()
        place.end(requester, responder)
    assert [answer[kind] for kind in ("lost", "duplicated", "damaged")] == [0, 0, 0]
