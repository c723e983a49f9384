"""From Arrow batches to messages, against taking each row by itself."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

import msgpack
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark.sink import messages as messages_of_the_sink
from spark.sink.errors import HeadersTooLarge, MissingValue
from spark.sink.messages import CACHED_BYTES_MAX, payloads, read_messages
from spark.sink.options import read_sink_options

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
MAP = pa.map_(pa.string(), pa.string())
names = st.sampled_from(["a", "b", "c.d"])
rows = st.lists(
    st.tuples(names, st.integers(0, 2), names, names, st.binary(max_size=5)), max_size=30
)


def batch(found: list[tuple[str, int, str, str, bytes]], **more: Any) -> pa.RecordBatch:
    queue, partition, exchange, topic, value = zip(*found, strict=True) if found else [()] * 5
    return pa.record_batch(
        {
            "queue": pa.array(queue, pa.string()), "partition": pa.array(partition, pa.int32()),
            "exchange": pa.array(exchange, pa.string()), "topic": pa.array(topic, pa.string()),
            "value": pa.array(value, pa.binary()), **more,
        }
    )  # fmt: skip


@given(rows)
def test_each_row_has_its_own_address_and_payload(
    found: list[tuple[str, int, str, str, bytes]],
) -> None:
    messages = read_messages(batch(found), read_sink_options({"to": "exchange"}))
    told = [
        (at.queue, at.partition, at.exchange, at.key, value)
        for at, value in zip(
            (messages.addresses[one] for one in messages.address_index),
            messages.payloads,
            strict=True,
        )
    ]
    assert told == found
    assert messages.headers is None


@given(rows)
def test_to_queues_the_key_is_the_queue(found: list[tuple[str, int, str, str, bytes]]) -> None:
    messages = read_messages(batch(found), read_sink_options({"to": "queues"}))
    told = [
        (at.exchange, at.key) for at in (messages.addresses[one] for one in messages.address_index)
    ]
    assert told == [("", one[0]) for one in found]


def test_a_column_that_says_nothing_of_where_it_goes_may_be_of_any_type() -> None:
    """Found: an exchange that was a number, where all goes to topics, was a stack of pyarrow's."""
    for given_exchange, kind in ((1, pa.int64()), (None, pa.int64()), (None, pa.string())):
        found = batch([("jobs", 0, "", "a", b"x")]).drop_columns("exchange")
        found = found.append_column("exchange", pa.array([given_exchange], kind))
        for options in ({}, {"to": "queues"}, {"to": "exchange", "exchange": "e"}):
            (address,) = read_messages(found, read_sink_options(options)).addresses
            assert address.exchange == options.get("exchange", "")


@given(st.lists(st.none() | st.binary(max_size=9)), st.integers(0, 5))
def test_payloads_of_a_slice(values: list[bytes | None], first: int) -> None:
    array = pa.array(values, pa.binary())[first:]
    assert payloads(array) == [one or b"" for one in values[first:]]
    assert payloads(array.cast(pa.large_binary())) == [one or b"" for one in values[first:]]


def test_zeros_at_the_end_of_payloads_of_one_size_stay() -> None:
    values = [b"a\0", b"\0\0", b"\0b"]
    assert payloads(pa.array(values, pa.binary())) == values


def test_what_was_replayed_is_left_out_and_counted_unless_it_is_wanted() -> None:
    lists = [[{"key": "n", "value": b"1"}], [{"key": "x-replayed-from", "value": b"jobs"}], None]
    found = batch(
        [("jobs", 0, "", "a", b"%d" % n) for n in range(3)], headers=pa.array(lists, HEADERS)
    )
    options = {"to": "topics", "replay": "true", "id": "r1"}
    messages = read_messages(found, read_sink_options(options))
    assert (messages.payloads, messages.skipped) == ([b"0", b"2"], 1)
    marked = {"x-replayed-from": "jobs", "x-replay-id": "r1"}
    assert list(map(msgpack.unpackb, messages.headers or [])) == [{"n": "1", **marked}, marked]
    again = read_messages(found, read_sink_options({**options, "replays": "send"}))
    assert (len(again.payloads), again.skipped) == (3, 0)


def test_headers_may_be_a_map_and_bytes_stay_bytes() -> None:
    found = batch([("jobs", 0, "", "a", b"x")], headers=pa.array([[("who", "me")]], MAP))
    messages = read_messages(found, read_sink_options({}))
    assert msgpack.unpackb((messages.headers or [b""])[0]) == {"who": "me"}
    raw = batch(
        [("jobs", 0, "", "a", b"x")], headers=pa.array([[{"key": "k", "value": b"\xff"}]], HEADERS)
    )
    packed = read_messages(raw, read_sink_options({})).headers or [b""]
    assert msgpack.unpackb(packed[0]) == {"k": b"\xff"}


def packed(kind: pa.DataType, values: list[Any]) -> list[bytes]:
    lists = pa.array([[("n", one)] for one in values], pa.map_(pa.string(), kind))
    found = batch([("jobs", 0, "", "a", b"x")] * len(values), headers=lists)
    return read_messages(found, read_sink_options({})).headers or []


def test_equal_headers_of_other_types_are_others() -> None:
    """Of one worker, one query after the other."""
    told = [
        msgpack.unpackb(one)["n"]
        for kind, values in ((pa.bool_(), [True]), (pa.int64(), [1]), (pa.float64(), [0.0, -0.0, 1.0]))
        for one in packed(kind, values)
    ]  # fmt: skip
    assert list(map(repr, told)) == ["True", "1", "0.0", "-0.0", "1.0"]


def test_large_headers_are_not_kept() -> None:
    before = messages_of_the_sink._cached_headers.cache_info().currsize
    packed(pa.binary(), [b"%d" % n + bytes(CACHED_BYTES_MAX) for n in range(5)])
    assert messages_of_the_sink._cached_headers.cache_info().currsize == before
    packed(pa.binary(), [b"this one is small"])
    assert messages_of_the_sink._cached_headers.cache_info().currsize == before + 1


@pytest.mark.parametrize("numbered", [True, False])
def test_headers_that_are_too_large_with_the_marks_of_a_replay_say_whose_they_are(
    numbered: bool,
) -> None:
    """Found: a replay ended at them, and nothing told which message to leave out."""
    large = [{"key": "k", "value": b"x" * (64 * 1024 - 20)}]
    more: dict[str, Any] = {"headers": pa.array([[], large], HEADERS)}
    if numbered:
        more["offset"] = pa.array([7, 8], pa.int64())
    options = {"to": "queues", "replay": "true", "id": "again"}
    found = batch([("jobs", 0, "", "a", b"1"), ("jobs", 2, "", "a", b"2")], **more)
    with pytest.raises(HeadersTooLarge) as caught:
        read_messages(found, read_sink_options(options))
    assert caught.value.whose == ("offset 8 of jobs/2" if numbered else "a row of queue 'jobs'")
    assert "exceeds the limit of 65536 bytes" in str(caught.value)


def test_a_header_without_a_name_is_an_error() -> None:
    """Found: a TypeError, with its stack."""
    lists = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(MissingValue, match=r"headers\.key"):
        read_messages(batch([("jobs", 0, "", "a", b"1")], headers=lists), read_sink_options({}))


BY_OFFSET = {"to": "queues", "id": "r", "numbering": "offsets"}


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ("topic", {}),
        ("topic", {"to": "exchange", "exchange": "orders"}),
        ("exchange", {"to": "exchange"}),
        ("queue", {"to": "queues"}),
        ("queue", {"replay": "true"}),
        ("queue", {**BY_OFFSET, "queue": "copies"}),
        ("partition", BY_OFFSET),
        ("offset", BY_OFFSET),
        ("timestamp", {"speed": "1", "startMicros": "1"}),
    ],
)
def test_a_row_without_what_says_where_or_when_is_an_error(
    column: str, options: dict[str, str]
) -> None:
    """It would go where another row of its batch goes."""
    whole = batch(
        [("jobs", 0, "", "a", b"1")] * 3, offset=pa.array([1, 2, 3]),
        timestamp=pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    )  # fmt: skip
    at = whole.schema.get_field_index(column)
    holed = pa.array([whole.column(at)[0].as_py(), None, None], whole.column(at).type)
    asked = read_sink_options(options)
    assert len(read_messages(whole, asked).payloads) == 3
    with pytest.raises(MissingValue, match=f"'{column}' is null in 2 rows"):
        read_messages(whole.set_column(at, column, holed), asked)


def test_null_in_what_is_not_asked_for_is_no_other_row_s_value() -> None:
    found = batch([("jobs", 0, "", "a", b"1")] * 2)
    found = found.set_column(0, "queue", pa.array(["jobs", None]))
    messages = read_messages(found, read_sink_options({}))
    assert [messages.addresses[one].queue for one in messages.address_index] == ["jobs", ""]
