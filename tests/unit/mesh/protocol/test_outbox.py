from __future__ import annotations

from collections.abc import Hashable

import pytest

from mesh.protocol.frame import DATA, MORE, RECORD_BYTES, Frame, Kind, pack_frame, pack_record
from mesh.protocol.outbox import QUANTUM_BYTES, Outbox

CHUNK = 512
ROOM = 10_000


def make_outbox(limit: int = 1 << 20, chunk: int = CHUNK) -> Outbox:
    return Outbox(limit_bytes=limit, chunk_bytes=chunk)


def take(outbox: Outbox, limit: int = ROOM) -> list[tuple[int, int, bytes]]:
    """(id, flags, body) of the records of one frame."""
    parts, count = outbox.take(limit)
    frame = Frame(pack_frame(DATA, 1, 0, 0, count, parts))
    return [(ident, flags, bytes(frame.data[a:b])) for _, flags, ident, a, b in frame.records]


def idents(outbox: Outbox, limit: int = ROOM) -> list[int]:
    return [ident for ident, _, _ in take(outbox, limit)]


def fill(outbox: Outbox, flow: Hashable, *ids: int, size: int = 100) -> None:
    for ident in ids:
        outbox.push(flow, Kind.REPLY, ident, bytes(size), key=ident)


def test_empty_is_false_and_takes_nothing() -> None:
    outbox = make_outbox(limit=1000)
    assert not outbox
    assert outbox.take(ROOM) == ([], 0)
    assert (outbox.size_bytes, outbox.room_bytes, outbox.flow_bytes("a")) == (0, 1000, 0)


def test_prefix_and_body_are_one_record() -> None:
    outbox = make_outbox()
    outbox.push("a", Kind.REPLY, 7, b"body", prefix=b"pre")
    assert outbox.size_bytes == outbox.flow_bytes("a") == RECORD_BYTES + 7
    assert take(outbox) == [(7, 0, b"prebody")]
    assert not outbox


@pytest.mark.parametrize("size", [CHUNK - 4, CHUNK - 3, CHUNK, 2 * CHUNK - 3, 2 * CHUNK, 5000])
def test_large_records_are_cut_into_whole_chunks(size: int) -> None:
    outbox = make_outbox()
    body = bytes(n % 251 for n in range(size))
    outbox.push("a", Kind.REPLY, 7, body, prefix=b"pre")
    pieces = take(outbox)
    assert b"".join(piece for _, _, piece in pieces) == b"pre" + body
    assert [len(piece) for _, _, piece in pieces[:-1]] == [CHUNK] * (len(pieces) - 1)
    assert 0 < len(pieces[-1][2]) <= CHUNK
    assert [flags for _, flags, _ in pieces] == [MORE] * (len(pieces) - 1) + [0]


def test_a_whole_record_is_not_cut() -> None:
    outbox = make_outbox()
    outbox.push_whole("a", Kind.BATCH, 7, [b"x" * 600, b"y" * 600], 1200, key="k")
    assert take(outbox) == [(7, 0, b"x" * 600 + b"y" * 600)]


def test_sent_is_called_once_when_the_first_piece_leaves() -> None:
    outbox = make_outbox()
    left: list[str] = []
    outbox.push("a", Kind.REPLY, 1, bytes(1200), sent=lambda: left.append("large"))
    outbox.push("a", Kind.REPLY, 2, b"", sent=lambda: left.append("small"))
    assert left == []
    take(outbox, CHUNK + RECORD_BYTES)
    assert left == ["large"]
    take(outbox)
    assert left == ["large", "small"]


def test_a_frame_holds_what_fits_and_at_least_one_record() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, 2, 3)
    assert idents(outbox, 2 * (RECORD_BYTES + 100)) == [1, 2]
    fill(outbox, "a", 4)
    assert idents(outbox, 1) == [3]
    assert outbox.size_bytes == RECORD_BYTES + 100


def test_flows_take_turns_a_quantum_each() -> None:
    outbox = make_outbox(limit=1 << 24, chunk=1 << 16)
    size = QUANTUM_BYTES // 4 - RECORD_BYTES
    fill(outbox, "a", *range(10), size=size)
    fill(outbox, "b", *range(100, 110), size=size)
    fill(outbox, "c", 200, size=size)
    assert idents(outbox, 1 << 24) == [
        *range(4), *range(100, 104), 200, *range(4, 8), *range(104, 108), 8, 9, 108, 109,
    ]  # fmt: skip


def test_a_flow_that_just_did_not_fit_is_first_in_the_next_frame() -> None:
    """Found: it went to the back, and a chunk that never just fits was never sent at all."""
    outbox = make_outbox(limit=1 << 24, chunk=QUANTUM_BYTES)
    small = QUANTUM_BYTES // 4 - RECORD_BYTES
    for flow in ("a", "b", "c"):
        fill(outbox, flow, *range(100), size=small)
    fill(outbox, "large", 1000, size=QUANTUM_BYTES)
    limit = 4 * QUANTUM_BYTES
    assert 1000 not in idents(outbox, limit)
    assert idents(outbox, limit)[0] == 1000


def test_a_flow_that_had_its_turn_goes_to_the_back_when_the_frame_is_full() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, 2, 3, 4)
    fill(outbox, "b", 10)
    assert idents(outbox, 2 * (RECORD_BYTES + 100)) == [1, 2]
    assert idents(outbox) == [10, 3, 4]


# Discarding


def test_discard_takes_out_all_under_a_key_and_no_others() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, 2, 1, 3)
    fill(outbox, "b", 1)
    assert outbox.discard("a", 1) == 2
    assert outbox.flow_bytes("a") == 2 * (RECORD_BYTES + 100)
    assert outbox.size_bytes == 3 * (RECORD_BYTES + 100)
    assert idents(outbox) == [2, 3, 1]
    assert outbox.discard("a", 2) == outbox.discard("unknown", 1) == 0


def test_each_flow_has_the_limit_for_itself_and_one_record_always_fits() -> None:
    outbox = Outbox(limit_bytes=100, chunk_bytes=512)
    assert outbox.takes("a", 1000), "alone, whatever its size"
    outbox.push("a", 1, 1, bytes(100 - RECORD_BYTES - 30))
    assert outbox.takes("a", 30)
    assert not outbox.takes("a", 31)
    assert outbox.takes("b", 1000)


def test_discarding_the_last_record_empties_the_outbox() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=2000)
    assert outbox.discard("a", 1) == 4
    assert not outbox
    assert outbox.size_bytes == 0


def test_a_begun_record_is_completed_though_it_is_discarded() -> None:
    outbox = make_outbox()
    outbox.push("a", Kind.REPLY, 1, bytes(2000), key="k")
    fill(outbox, "a", 2)
    outbox.push("a", Kind.REPLY, 3, bytes(2000), key="k")
    assert take(outbox, CHUNK)[0][:2] == (1, MORE)
    assert outbox.discard("a", "k") == 4
    assert [(ident, flags) for ident, flags, _ in take(outbox)] == [
        (1, MORE), (1, MORE), (1, 0), (2, 0),
    ]  # fmt: skip


def test_drop_oldest_takes_one_whole_record_and_names_it() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=2000)
    fill(outbox, "a", 2, 3)
    assert outbox.drop_oldest("a") == 1
    assert outbox.size_bytes == outbox.flow_bytes("a") == 2 * (RECORD_BYTES + 100)
    assert outbox.drop_oldest("a") == 2
    assert idents(outbox) == [3]
    assert outbox.drop_oldest("a") is None


def test_drop_oldest_of_the_last_record_empties_the_outbox() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1)
    assert outbox.drop_oldest("a") == 1
    assert not outbox
    assert outbox.size_bytes == 0


def test_drop_oldest_passes_over_what_has_begun() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=1200)
    fill(outbox, "a", 2, 3)
    take(outbox, CHUNK)
    assert outbox.drop_oldest("a") == 2
    assert outbox.drop_oldest("a") == 3
    assert outbox.drop_oldest("a") is None
    assert [(ident, flags) for ident, flags, _ in take(outbox)] == [(1, MORE), (1, 0)]


def test_drop_oldest_passes_over_what_stays() -> None:
    outbox = make_outbox()
    outbox.push("a", Kind.REPLY, 1, bytes(1200), key=1, stays=True)
    outbox.push_whole("a", Kind.REPLY, 2, [b"x"], 1, key=2, stays=True)
    fill(outbox, "a", 3, 4)
    assert outbox.drop_oldest("a") == 3
    assert [ident for ident, _, _ in take(outbox)] == [1, 1, 1, 2, 4]


# Notes


def note(outbox: Outbox, ident: int, left: list[int], *, front: bool) -> None:
    record = pack_record(Kind.BATCH, ident, b"lost")
    outbox.note("a", record, lambda: left.append(ident), front=front)


def test_notes_stand_in_their_place_and_are_never_dropped() -> None:
    outbox = make_outbox()
    left: list[int] = []
    fill(outbox, "a", 1, 2)
    note(outbox, 90, left, front=False)
    fill(outbox, "a", 3)
    note(outbox, 91, left, front=True)
    assert [outbox.drop_oldest("a") for _ in range(4)] == [1, 2, 3, None]
    assert outbox.size_bytes == 2 * (RECORD_BYTES + 4)
    assert idents(outbox) == [91, 90]
    assert left == [91, 90]


def test_a_note_in_front_lets_a_begun_record_finish() -> None:
    outbox = make_outbox()
    fill(outbox, "a", 1, size=1200)
    fill(outbox, "a", 2)
    take(outbox, CHUNK)
    note(outbox, 90, [], front=True)
    assert idents(outbox) == [1, 1, 90, 2]


def test_a_note_into_an_empty_flow() -> None:
    outbox = make_outbox()
    note(outbox, 90, [], front=True)
    assert idents(outbox) == [90]
