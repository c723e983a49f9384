"""The schema: what a row is, for Spark and for Arrow.

    queue, partition, offset           where it is: name of a queue or stream, priority, sequence
    timestamp                          when the broker took it
    exchange, topic                    how it was addressed; topic is the routing key
    value                              its payload
    publisher, epoch, sequence         which message it is: never the same for two
    published                          when its batch was packed, by the publisher's clock
    headers                            with includeHeaders

All of them are in Arrow what Spark wants to get, to the letter: it checks the first batch only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from .options import KEEP, Options

HEADERS = "headers"
SQL: Mapping[str, str] = {
    "queue": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "exchange": "string", "topic": "string", "value": "binary",
    "publisher": "binary", "epoch": "bigint", "sequence": "bigint", "published": "timestamp",
    HEADERS: "array<struct<key:string,value:binary>>",
}  # fmt: skip
"""Type of each column as Spark writes it."""
_READ = {"timestamp": "timestamp_ltz"}
"""A time in UTC, whatever a session's `spark.sql.timestampType` makes of the shorter name."""
TIME = pa.timestamp("us", "UTC")
HEADER_LIST = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "timestamp": TIME, "binary": pa.binary()}  # fmt: skip
ARROW: Mapping[str, pa.DataType] = {
    name: _ARROW.get(kind, HEADER_LIST) for name, kind in SQL.items()
}


def schema_of(options: Options, columns: Iterable[str] | None = None) -> pa.Schema:
    """Of the rows of a query with these columns; None: all, headers only where they are wanted.

    Columns are declared never null where nothing is: then Spark asks no row whether it is, a tenth of the
    JVM's time. What is damaged, and kept, has nulls.
    """
    if columns is None:
        columns = (name for name in SQL if options.include_headers or name != HEADERS)
    nullable = options.damaged == KEEP
    return pa.schema([pa.field(name, ARROW[name], nullable) for name in columns])


def ddl(schema: pa.Schema) -> str:
    """The same as Spark reads it."""
    return ", ".join(
        f"{one.name} {_READ.get(SQL[one.name], SQL[one.name])}{'' if one.nullable else ' NOT NULL'}"
        for one in schema
    )
