"""Which rows cannot be sent is said before there are any."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

from spark.sink.columns import check_columns
from spark.sink.errors import MissingColumn, WrongColumn
from spark.sink.options import read_sink_options

USUAL = {
    "queue": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp",
    "exchange": "string", "topic": "string", "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}  # fmt: skip
PACED = {"speed": "1", "startMicros": "1"}
BY_OFFSET = {"to": "queues", "id": "r", "numbering": "offsets"}


@pytest.mark.parametrize(
    ("columns", "options", "missing"),
    [
        (["topic"], {}, "value"),
        (["value"], {}, "topic"),
        (["value"], {"to": "queues"}, "queue"),
        (["value", "topic"], {"to": "exchange"}, "exchange"),
        (["value", "topic"], {"speed": "1", "startMicros": "1"}, "timestamp"),
        (["value", "topic", "queue", "partition"], {"id": "r", "numbering": "offsets"}, "offset"),
    ],
)
def test_a_column_that_is_missing_is_named(
    columns: list[str], options: dict[str, str], missing: str
) -> None:
    with pytest.raises(MissingColumn, match=f"no column '{missing}'"):
        check_columns({one: USUAL[one] for one in columns}, read_sink_options(options))
    check_columns({one: USUAL[one] for one in (*columns, missing)}, read_sink_options(options))


@pytest.mark.parametrize(
    ("column", "kind", "options"),
    [
        ("value", "bigint", {}),
        ("value", "struct<id:bigint>", {}),
        ("topic", "int", {}),
        ("queue", "int", {"topic": "a"}),
        ("exchange", "binary", {"to": "exchange"}),
        ("partition", "double", BY_OFFSET),
        ("offset", "string", BY_OFFSET),
        ("timestamp", "string", PACED),
        ("headers", "string", {}),
        ("headers", "map<int,string>", {}),
        ("headers", "map<string,date>", {}),
        ("headers", "map<string,decimal(2,1)>", {}),
        ("headers", "array<struct<key:string,value:timestamp>>", {}),
        ("headers", "array<struct<name:string,value:string>>", {}),
        ("headers", "map<string,array<date>>", {}),
        ("headers", "map<string,map<string,decimal(2,1)>>", {}),
        ("headers", "map<string,struct<date:date>>", {}),
        ("headers", "array<struct<key:string,value:array<timestamp_ntz>>>", {}),
        ("headers", "array<struct<key:string,value:struct<a:int,b:interval day to second>>>", {}),
    ],
)
def test_a_type_that_cannot_be_sent_is_named(
    column: str, kind: str, options: dict[str, str]
) -> None:
    """Found: a stack of pyarrow's, from a task."""
    asked = read_sink_options(options)
    check_columns(USUAL, asked)
    with pytest.raises(WrongColumn, match=f"column '{column}' is ") as caught:
        check_columns({**USUAL, column: kind}, asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "kind", "options"),
    [
        ("value", "string", {}),
        ("value", "varchar(8)", {}),
        ("topic", "int", {"to": "queues"}),
        ("timestamp", "timestamp_ntz", PACED),
        ("timestamp", "string", {}),
        ("offset", "smallint", BY_OFFSET),
        ("headers", "map<string,bigint>", {}),
        ("headers", "array<struct<value:string,key:string>>", {}),
        ("headers", "map<string,map<string,double>>", {}),
        ("headers", "map<string,struct<date:int,time:array<string>>>", {}),
        ("exchange", "int", {}),
        ("exchange", "int", {"to": "exchange", "exchange": "e"}),
    ],
)
def test_other_types_can_be_sent(column: str, kind: str, options: dict[str, str]) -> None:
    check_columns({**USUAL, column: kind}, read_sink_options(options))
