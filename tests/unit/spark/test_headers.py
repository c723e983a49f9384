"""Headers of messages as lists in Arrow."""

from __future__ import annotations

import json

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa

from mesh.message import encode_headers
from spark.capture.headers import header_lists, no_headers
from spark.capture.rows import HEADER_LIST


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_none_are_empty_lists_of_the_type_that_spark_wants(rows: int) -> None:
    found = no_headers(rows)
    found.validate(full=True)
    assert found.type == HEADER_LIST
    assert found.to_pylist() == [[]] * rows


def test_text_bytes_and_other_values() -> None:
    maps = [msgpack.packb(one) for one in ({"a": "b", "c": b"\xff"}, {}, {"n": 1})]
    found = header_lists(pa.array([*maps, b"", b"\xc1"], pa.binary()))
    assert found.type == HEADER_LIST
    pairs = [[(one["key"], one["value"]) for one in row] for row in found.to_pylist()]
    assert pairs == [[("a", b"b"), ("c", b"\xff")], [], [("n", b"1")], [], []]


def test_names_that_are_bytes_and_what_is_nested_deeply() -> None:
    """Found: one such message, which every publisher may send, ended each read of its log with headers."""
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    values = {"a": {b"k": b"\xff", "n": None}, "b": [{b"\xff": [1.5, True]}], "c": deep}
    (row,) = header_lists(pa.array([encode_headers(values, 1 << 16)], pa.binary())).to_pylist()
    found = {one["key"]: json.loads(one["value"]) for one in row}
    assert found["a"] == {"b'k'": "b'\\xff'", "n": None}
    assert found["b"] == [{"b'\\xff'": [1.5, True]}]
    told = found["c"]
    while isinstance(told, list):
        (told,) = told
    assert told == "..."
