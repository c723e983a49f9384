"""Calls, parts and properties: what is packed is read back, and garbage is Malformed, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import BrokerError, Malformed
from durable.protocol import calls, parts
from durable.protocol.calls import Answer, Call
from durable.protocol.error_codec import describe_error, rebuild_error
from durable.protocol.parts import ACK, REJECT, RELEASE, REQUEUE, Refusal, Settlement
from durable.protocol.properties import (
    Death,
    Properties,
    decode_properties,
    encode_properties,
)
from mesh.protocol.batch import NUMBERS_END
from tests.vhosts import make_batch

u64 = st.integers(0, 2**64 - 1)
texts = st.text(max_size=10)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
maps = st.dictionaries(texts, plain, max_size=3)
deaths = st.builds(
    Death, texts, texts, st.integers(0, 2**32), texts, st.lists(texts, max_size=3).map(tuple),
    st.integers(0, 2**63),
)  # fmt: skip
keys = st.lists(texts, max_size=3).map(tuple)
properties = st.builds(
    Properties, texts, st.integers(0, 9), st.none() | st.integers(0, 10**12), st.booleans(), keys,
    keys, st.lists(deaths, max_size=2).map(tuple),
)  # fmt: skip


@given(properties)
def test_properties_come_back(one: Properties) -> None:
    assert decode_properties(encode_properties(one)) == one


@given(st.integers(1, 2**31), texts, maps)
def test_calls_come_back(number: int, operation: str, arguments: dict[str, Any]) -> None:
    call = Call(number, operation, arguments)
    assert calls.decode_call(calls.encode_call(call)) == call


@given(st.integers(0, 2**31), plain, texts, maps)
def test_answers_come_back(number: int, result: Any, error: str, details: dict[str, Any]) -> None:
    answer = Answer(number, None, error, details) if error else Answer(number, result)
    assert calls.decode_answer(calls.encode_answer(answer)) == answer


@given(texts, texts, maps)
def test_hellos_come_back(kind: str, vhost: str, fields: dict[str, Any]) -> None:
    fields = {name: value for name, value in fields.items() if name not in ("v", "kind", "vhost")}
    assert calls.decode_hello(calls.encode_hello(kind, vhost, **fields)) == (kind, vhost, fields)


def test_found_a_hello_was_kept_with_whatever_was_in_it() -> None:
    """A megabyte of empty lists takes 70, for as long as the tunnel lasts."""
    part = calls.encode_hello("control", "/", session=b"s", junk=[[]] * 1000, other={"a": [[]]})
    plain = {"session": b"s", "junk": [], "other": {}}
    assert calls.decode_hello(part).stripped() == ("control", "/", plain)
    with pytest.raises(Malformed, match=r"hello of \d+ bytes, at most 16384"):
        calls.decode_hello(calls.encode_hello("control", "/", junk=[[]] * 17_000))
    many = calls.encode_hello("control", "/", **{str(number): 1 for number in range(65)})
    with pytest.raises(Malformed, match="hello of 65 fields, at most 64"):
        calls.decode_hello(many).stripped()


def test_a_hello_that_lacks_something_is_refused_by_its_name() -> None:
    """Found: `a hello whose session is ellipsis`."""
    hello = calls.decode_hello(calls.encode_hello("consume", "/", queue=5))
    with pytest.raises(Malformed, match=r"a hello without session$"):
        hello.field("session", bytes)
    with pytest.raises(Malformed, match=r"a hello whose queue is int, not str$"):
        hello.field("queue", str)
    assert hello.field("prefetch", int, 0) == 0


@given(st.lists(st.tuples(st.sampled_from([ACK, REQUEUE, REJECT, RELEASE]), u64, u64), min_size=1))
def test_settlements_come_back(given_ones: list[tuple[int, int, int]]) -> None:
    ones = [Settlement(what, *sorted(ends)) for what, *ends in given_ones if ends[0] != ends[1]]
    if ones:
        assert parts.decode_settlements(parts.encode_settlements(ones)) == ones


@given(u64, st.lists(st.builds(Refusal, u64, u64, texts, maps), max_size=3))
def test_confirms_come_back(sequence: int, refusals: list[Refusal]) -> None:
    assert parts.decode_confirm(parts.encode_confirm(sequence, refusals)) == (sequence, refusals)


@given(st.lists(st.builds(Refusal, u64, u64, texts, maps), max_size=6), st.integers(1, 300))
def test_refusals_go_into_as_many_confirms_as_it_takes(
    refusals: list[Refusal], bytes_max: int
) -> None:
    found: list[Refusal] = []
    while len(found) < len(refusals):
        rest = refusals[len(found) :]
        fitting = rest[: parts.count_fitting(rest, bytes_max)]
        part = parts.encode_confirm(5, fitting)
        assert len(fitting) == 1 or len(part) <= bytes_max
        found += parts.decode_confirm(part)[1]
    assert found == refusals
    assert parts.count_fitting(refusals, 1 << 20) == len(refusals)


@given(st.builds(parts.Gap, u64, st.binary(min_size=16, max_size=16), u64, texts, u64, u64))
def test_gaps_come_back(gap: parts.Gap) -> None:
    assert parts.decode_gap(parts.encode_gap(gap)) == gap


codes = texts.filter(lambda code: getattr(rebuild_error(code, {}), "code", None) == code)
"""Names of no class of ours: hypothesis draws names that stand in our modules, too."""


@given(codes, maps)
def test_ends_come_back(code: str, details: dict[str, Any]) -> None:
    ended = parts.decode_ended(parts.encode_ended(BrokerError(code, details)))
    assert describe_error(ended) == (code, details)


@given(
    st.lists(st.tuples(u64, st.integers(0, 2**32 - 1), st.lists(st.binary(max_size=9), min_size=1)))
)
def test_slices_and_batches_come_back(slices: list[tuple[int, int, list[bytes]]]) -> None:
    batches = [make_batch(5, payloads) for _, _, payloads in slices]
    pieces: list[bytes | memoryview] = [b"D"]
    for (tag, returned, _), batch in zip(slices, batches, strict=True):
        pieces += parts.encode_slice(tag, returned, batch.raw())
    found = list(parts.decode_slices(b"".join(pieces)))
    assert [(one.tag, one.returned, one.batch.payloads) for one in found] == slices
    joined = b"".join(batch.raw() for batch in batches)
    assert [one.payloads for one in parts.decode_batches(joined)] == [one[2] for one in slices]


def test_a_batch_whose_sequences_go_on_beyond_what_is_counted() -> None:
    last = make_batch(NUMBERS_END - 1, [b"x"]).raw()
    assert len(parts.decode_batches(last)) == 1
    for beyond in (NUMBERS_END, 2**64 - 1):
        with pytest.raises(Malformed, match="sequence"):
            parts.decode_batches(last + make_batch(beyond, [b"x"]).raw())


DECODERS: list[Callable[[bytes], Any]] = [
    calls.decode_hello, calls.decode_call, calls.decode_answer, parts.decode_batches,
    parts.decode_settlements, parts.decode_number, parts.decode_confirm, parts.decode_ended,
    lambda part: list(parts.decode_slices(part)), decode_properties, parts.decode_gap,
]  # fmt: skip
VALID = [
    calls.encode_hello("publish", "/", epoch=1), calls.encode_call(Call(1, "bind", {"a": [1]})),
    calls.encode_answer(Answer(1, None, "QueueFull", {"a": 1})), make_batch(1, [b"x", b"yy"]).raw(),
    parts.encode_settlements([Settlement(ACK, 1, 5)]), parts.encode_number(b"K", 9),
    parts.encode_confirm(5, [Refusal(1, 2, "QueueFull", {"a": 1})]),
    parts.encode_ended(BrokerError("QueueFull", {"a": 1})),
    parts.encode_gap(parts.Gap(3, bytes(16), 1, "t", 5, 2)),
    b"D" + b"".join(parts.encode_slice(1, 2, make_batch(1, [b"x"], headers=[b"\x80"]).raw())),
    encode_properties(Properties("x", 3, 5, True, ("c",), ("b",), (Death("q", "r", 1, "", (), 1),))),
]  # fmt: skip


@given(st.data())
def test_garbage_is_malformed_and_nothing_else(data: st.DataObject) -> None:
    """Bytes at random, and bytes that were something once: cut, flipped, put in."""
    raw = data.draw(st.binary(max_size=80) | st.sampled_from(VALID))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(raw)))
        more = data.draw(st.binary(max_size=4))
        raw = raw[:at] + more + raw[at + data.draw(st.integers(0, 4)) :]
    for decode in DECODERS:
        with suppress(Malformed):
            decode(raw)


@pytest.mark.parametrize("decode", DECODERS)
@given(
    raw=st.sampled_from(VALID).flatmap(lambda one: st.integers(0, len(one)).map(lambda n: one[:n]))
)
def test_what_is_cut_off_is_malformed(decode: Callable[[bytes], Any], raw: bytes) -> None:
    with suppress(Malformed):
        decode(raw)


def test_an_answer_is_no_confirm() -> None:
    """Found: any part of nine bytes and more was read as one, whatever its kind."""
    with pytest.raises(Malformed):
        parts.decode_confirm(b"S" + bytes(8))
    with pytest.raises(Malformed):
        parts.decode_settlements(b"A")
