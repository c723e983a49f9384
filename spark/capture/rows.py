"""The schema of rows, for Spark and for Arrow.

    queue, partition, offset           where it is: name of a queue or stream, priority, sequence
    timestamp                          when the broker received it
    exchange, topic                    how it was addressed; topic is the routing key
    value                              its payload
    publisher, epoch, sequence         which message it is: never the same for two messages
    published                          when its batch was packed, by the publisher's clock
    headers                            with includeHeaders

The Arrow types must be exactly those that Spark expects: it checks only the first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from .options import KEEP, Options

HEADERS = "headers"
SQL_TYPES: Mapping[str, str] = {
    "queue": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "exchange": "string", "topic": "string", "value": "binary",
    "publisher": "binary", "epoch": "bigint", "sequence": "bigint", "published": "timestamp",
    HEADERS: "array<struct<key:string,value:binary>>",
}  # fmt: skip
"""The type of each column, in Spark's notation."""
_DDL_TYPES = {"timestamp": "timestamp_ltz"}
"""A time in UTC, even if a session's `spark.sql.timestampType` gives `timestamp` another meaning."""
TIME = pa.timestamp("us", "UTC")
HEADER_LIST = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_ARROW_BY_SQL = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "timestamp": TIME, "binary": pa.binary()}  # fmt: skip
ARROW_TYPES: Mapping[str, pa.DataType] = {
    name: _ARROW_BY_SQL.get(kind, HEADER_LIST) for name, kind in SQL_TYPES.items()
}


def schema_of(options: Options, columns: Iterable[str] | None = None) -> pa.Schema:
    """Return the schema of rows with these columns; None: all, headers only if the options ask for them.

    Columns without nulls are declared so, which saves Spark a null check per row and value, a tenth of the
    JVM's time. Rows that stand for kept damage have nulls.
    """
    if columns is None:
        columns = (name for name in SQL_TYPES if options.include_headers or name != HEADERS)
    nullable = options.damaged == KEEP
    return pa.schema([pa.field(name, ARROW_TYPES[name], nullable) for name in columns])


def ddl(schema: pa.Schema) -> str:
    """Return the schema in Spark's notation."""
    return ", ".join(
        f"{one.name} {_DDL_TYPES.get(SQL_TYPES[one.name], SQL_TYPES[one.name])}{'' if one.nullable else ' NOT NULL'}"
        for one in schema
    )
