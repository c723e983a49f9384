"""What waits to be packed is counted right, whatever way it came and however much of it has left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from durable.client.gathering import YIELD_BYTES, Gathering, cumulative_sizes
from durable.protocol.parts import decode_batches
from mesh.protocol.batch import PER_MESSAGE_BYTES

PUBLISHER = bytes(16)


def gathered(*keys: str) -> Gathering:
    gathering = Gathering(1000)
    for key in keys:
        gathering.add("", key, b"properties", b"x" * 92, None)
    return gathering


def counts(gathering: Gathering) -> tuple[int, int]:
    return gathering.count, gathering.size_bytes


def test_counts_follow_what_is_added_and_packed() -> None:
    each = 92 + PER_MESSAGE_BYTES
    gathering = gathered("a", "b", "b", "a")
    assert counts(gathering) == (4, 4 * each)
    gathering.current.payloads.append(b"x" * 92)  # As the publisher's hot path does.
    gathering.current.size_bytes += each
    assert counts(gathering) == (5, 5 * each)
    _, packed = gathering.pack(PUBLISHER, 1, 0, 0, part_bytes_max=400)
    assert packed == 1
    assert counts(gathering) == (4, 4 * each)
    gathering.add("", "c", b"properties", b"x" * 92, None)
    assert counts(gathering) == (5, 5 * each)
    _, packed = gathering.pack(PUBLISHER, 1, 1, 0, part_bytes_max=1 << 20)
    assert packed == 5
    assert counts(gathering) == (0, 0)
    assert not gathering


def test_counts_follow_what_leaves_in_halves_after_a_barrier() -> None:
    gathering = gathered(*"aaaab")
    assert gathering.barrier() == 5
    left = 5
    while gathering:
        left -= gathering.pack(PUBLISHER, 1, 5 - left, 0, part_bytes_max=400)[1]
        assert gathering.count == left


def test_keys_in_turn_leave_in_one_part() -> None:
    gathering = gathered(*"abcabcabc")
    assert gathering.pack(PUBLISHER, 1, 0, 0, part_bytes_max=1 << 20)[1] == 9


KINDS = ["queue"] * 6 + ["routed"] * 2 + ["barrier", "pack"]
steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"), st.booleans()),
    min_size=10,
    max_size=80,
)


@given(steps, st.integers(50, 400), st.integers(150, 3000))
def test_only_messages_to_different_queues_pass_one_another(
    taken: list[tuple[str, str, bool]], batch_bytes: int, part_bytes: int
) -> None:
    gathering = Gathering(batch_bytes, alternating_bytes=200)
    packed: list[tuple[str, str, int]] = []
    given_ones: list[tuple[str, str, int]] = []

    def pack() -> None:
        data, count = gathering.pack(PUBLISHER, 1, len(packed), 0, part_bytes)
        assert len(data) <= part_bytes or count == 1
        for batch in decode_batches(data):
            kind = "routed" if batch.shared_headers else "queue"
            numbers = [int(payload) for payload in batch.payloads]
            packed.extend((kind, batch.topic, number) for number in numbers)

    barriers: list[int] = []
    for kind, key, with_headers in taken:
        number = len(given_ones)
        payload = b"%06d" % number
        if kind == "barrier":
            assert gathering.barrier() == number - len(packed)
            barriers.append(number)
        elif kind == "pack":
            pack()
        elif kind == "queue" and not with_headers and append_to_turn(gathering, key, payload):
            given_ones.append((kind, key, number))
        else:
            gathering.add(
                "" if kind == "queue" else "orders", key, b"" if kind == "queue" else b"\x80",
                payload, b"\x80" if with_headers else None, to_queue=kind == "queue",
            )  # fmt: skip
            given_ones.append((kind, key, number))
        assert gathering.count == len(given_ones) - len(packed)
    while gathering:
        pack()
    assert sorted(packed, key=lambda one: one[2]) == given_ones
    for queue in "ab":
        seen = [number for kind, key, number in packed if kind == "routed" or key == queue]
        assert seen == sorted(seen)
    for barrier in barriers:
        assert max((n for _, _, n in packed[:barrier]), default=-1) == barrier - 1
    assert counts(gathering) == (0, 0)


def append_to_turn(gathering: Gathering, key: str, payload: bytes) -> bool:
    """As the publisher's hot path does."""
    group = gathering.current
    if group.key != key or group.exchange != "":
        group = gathering.switch("", key)
    if group.size_bytes + len(payload) + PER_MESSAGE_BYTES > group.limit_bytes:
        return False
    group.payloads.append(payload)
    group.size_bytes += len(payload) + PER_MESSAGE_BYTES
    return True


def test_more_gathers_while_queues_take_turns_than_of_one_key() -> None:
    gathering = Gathering(batch_bytes=YIELD_BYTES, alternating_bytes=1000)
    gathering.add("", "a", b"", bytes(YIELD_BYTES - 8), None, to_queue=True)
    assert (
        gathering.should_yield("a"),
        gathering.should_yield(None),
        gathering.should_yield("b"),
    ) == (True, True, False)
    gathering.add("", "b", b"", bytes(992), None, to_queue=True)
    assert (gathering.should_yield("b"), gathering.should_yield("c")) == (True, True)
    gathering.postpone_yield()
    assert not gathering.should_yield(None)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=60),
    st.booleans(),
    st.integers(50, 400),
    st.integers(0, 300),
)
def test_many_at_once_are_as_if_they_came_one_by_one(
    sizes: list[int], with_headers: bool, batch_bytes: int, room_bytes: int
) -> None:
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    headers = b"headers" if with_headers else None
    singly, together = Gathering(batch_bytes), Gathering(batch_bytes)
    for payload in payloads:
        singly.add("", "a", b"", payload, headers, to_queue=True)
    size_sums, at = cumulative_sizes(payloads, headers), 0
    while at < len(payloads):
        before = together.size_bytes
        together.add("", "a", b"", payloads[at], headers, to_queue=True)
        first_bytes = together.size_bytes - before
        at = together.extend(payloads, at, size_sums, room_bytes)
        assert together.size_bytes - before <= first_bytes + room_bytes
    assert counts(together) == counts(singly)
    assert together.pack(PUBLISHER, 1, 0, 0, 1 << 20) == singly.pack(PUBLISHER, 1, 0, 0, 1 << 20)
