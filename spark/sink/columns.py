"""Checks whether rows with these columns can be sent, before there are any rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import MissingColumn, WrongColumn
from .options import EXCHANGE, OFFSETS, QUEUES, SinkOptions

TEXT, INTEGER = r"(string|varchar|char)\b.*", r"(tiny|small|big)?int"
NOT_ENCODABLE = r"[<,:](date|time|timestamp\w*|decimal|interval|variant)\b(?!:)"
"""Types that msgpack cannot encode, at any depth; the name of a struct's field may look like one."""
TYPES: Mapping[str, tuple[str, str]] = {
    # column: pattern for Spark's notation of its type, and a description for people
    "value": (rf"binary|{TEXT}", "binary or string"),
    **dict.fromkeys(("queue", "exchange", "topic"), (TEXT, "string")),
    **dict.fromkeys(("partition", "offset"), (INTEGER, "an integer")),
    "timestamp": (r"timestamp(_\w+)?", "timestamp"),
    "headers": (
        rf"(?!.*{NOT_ENCODABLE})(map<string,.+>|array<struct<(?=.*\bkey:string)(?=.*\bvalue:).+>>)",
        "a map from string, or an array of (key string, value), with values that are text, bytes, numbers or booleans",
    ),
}


def check_columns(types: Mapping[str, str], options: SinkOptions) -> None:
    """Check that rows with these columns can be sent as the options say.

    Args:
        types: the type of each column, as in `DataFrame.dtypes`.
    Raises:
        MissingColumn, WrongColumn: they cannot.
    """
    needed = _needed_columns(options)
    for name, why in needed.items():
        if name not in types:
            raise MissingColumn(name, why, types)
    for name in dict.fromkeys((*needed, "queue", "partition", "headers")):
        pattern, wanted = TYPES[name]
        if name in types and not re.fullmatch(pattern, types[name]):
            raise WrongColumn(name, types[name], wanted)


def _needed_columns(options: SinkOptions) -> dict[str, str]:
    """Return the columns that have to be there, and why."""
    needed = {"value": "the payload"}
    if options.to == QUEUES and options.queue is None:
        needed["queue"] = "and option queue is not set"
    if options.to != QUEUES and options.topic is None:
        needed["topic"] = "and option topic is not set"
    if options.to == EXCHANGE and options.exchange is None:
        needed["exchange"] = "and option exchange is not set"
    if options.speed:
        needed["timestamp"] = "which speed needs"
    if options.numbering == OFFSETS:
        needed |= dict.fromkeys(("queue", "partition", "offset"), "which numbering=offsets needs")
    return needed
