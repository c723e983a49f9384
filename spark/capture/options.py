"""The options of `mesh-capture`, checked before anything is read. docs/spark.md has the table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields

from durable.broker.directory import DEFAULT_VHOST
from mesh.errors import InvalidName
from mesh.names import check_pattern
from mesh.times import parse_time, since_epoch_us

from ..errors import ContradictoryOptions, InvalidOption
from ..options import (
    Readers,
    check_regex,
    check_text,
    choice_reader,
    read_flag,
    read_given_options,
    read_integer_json,
)
from ..settings import SETTING_PREFIX
from .decryption import KeyFiles

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
"""As in the JSON offsets of Spark's Kafka source."""
FAIL, SKIP, KEEP = "fail", "skip", "keep"
NONE, QUEUE = "none", "queue"
OFFSET_MAX = 1 << 62
KEY_FILES = tuple(one.name for one in fields(KeyFiles))
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

Positions = str | Mapping[str, Mapping[int, int]]
"""`earliest`, `latest`, or offsets by queue and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one query. Fields are named after the options, see READERS."""

    path: str = ""
    vhost: str = DEFAULT_VHOST
    streams: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    """If both are None, all queues and streams; otherwise only those named."""
    subscribe: tuple[str, ...] | None = None
    """Patterns of topics."""
    subscribe_pattern: str | None = None
    """A regular expression that must match the whole topic."""
    starting_offsets: Positions | None = None
    ending_offsets: Positions = LATEST
    starting_us: int | None = None
    ending_us: int | None = None
    include_headers: bool = False
    ordering: str = NONE
    max_partition_bytes: int = 128 << 20
    """Not smaller, because a task takes 60 ms of a core, however little it reads."""
    min_partitions: int = 1
    batch_rows: int = 8192
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    damaged: str = FAIL
    sync_tail: bool = True
    """Whether a streaming query syncs the log's end before reading it; see docs/spark.md."""
    keys: KeyFiles = field(default_factory=KeyFiles)
    """For encrypted logs: the options mesh.network_secret_file and mesh.keys_dir."""
    given: frozenset[str] = field(default_factory=frozenset)
    """Names of the options that were set."""


def read_options(options: Mapping[str, str]) -> Options:
    """Read and check all options. Raises UnknownOption, InvalidOption, ContradictoryOptions, each in one line."""
    values, keys, given = read_given_options(options, READERS, KEY_FILES)
    if not values.get("path"):
        raise InvalidOption("path", "", "a broker's directory, such as in .load('orders.data')")
    if len(keys) > 1:
        names = tuple(SETTING_PREFIX + one for one in keys)
        raise ContradictoryOptions(names, "both name the source of keys: give only one of them")
    found = Options(**values, keys=KeyFiles(**keys), given=given)
    _check(found)
    return found


def _check(options: Options) -> None:
    for one, other, why in (
        ("subscribe", "subscribePattern", "both select topics: give only one of them"),
        ("startingOffsets", "startingTimestamp", "both say where to start: give only one of them"),
        ("endingOffsets", "endingTimestamp", "both say where to end: give only one of them"),
        (
            "maxOffsetsPerTrigger",
            "maxBytesPerTrigger",
            "both limit a trigger: give only one of them",
        ),
    ):
        if {one, other} <= options.given:
            raise ContradictoryOptions((one, other), why)
    low, high = options.starting_us, options.ending_us
    if low is not None and high is not None and low > high:
        names = ("startingTimestamp", "endingTimestamp")
        raise ContradictoryOptions(names, "the end is before the start")
    start, end = options.starting_offsets, options.ending_offsets
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        for queue, partition, offset in _offsets(start):
            last = end.get(queue, {}).get(partition, LATEST_OFFSET)
            if 0 <= last < offset:
                names = ("startingOffsets", "endingOffsets")
                why = f"{queue!r} would end at {last}, before its start at {offset}"
                raise ContradictoryOptions(names, why)


def check_batch(options: Options) -> None:
    """Raise InvalidOption or ContradictoryOptions for what makes no sense in a batch query."""
    if options.starting_offsets == LATEST:
        raise InvalidOption("startingOffsets", LATEST, "earliest or JSON: a batch would be empty")
    if options.ending_offsets == EARLIEST:
        raise InvalidOption("endingOffsets", EARLIEST, "latest or JSON: a batch would be empty")
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
        if name in options.given:
            raise ContradictoryOptions((name, "read"), "only for streaming: use readStream")


def check_streaming(options: Options) -> None:
    """Raise ContradictoryOptions for what makes no sense in a streaming query."""
    for name in ("endingOffsets", "endingTimestamp"):
        if name in options.given:
            raise ContradictoryOptions((name, "readStream"), "a stream has no end: use read")


def _offsets(positions: Mapping[str, Mapping[int, int]]) -> list[tuple[str, int, int]]:
    return [
        (queue, one, offset)
        for queue, partitions in positions.items()
        for one, offset in partitions.items()
    ]


# Each of these reads the text of one option, and raises InvalidOption.


def _text(name: str, text: str) -> str:
    return text


def _vhost(name: str, text: str) -> str:
    if not text:
        raise InvalidOption(name, text, f"a name, such as {DEFAULT_VHOST}")
    return check_text(name, text)


def _names(name: str, text: str) -> tuple[str, ...]:
    """Split at commas; names that contain a comma have to be given as JSON."""
    found = tuple(one.strip() for one in text.split(","))
    if text.startswith("["):
        with suppress(ValueError, RecursionError):
            read = json.loads(text)
            found = tuple(one for one in read if isinstance(one, str))
            found = found if len(found) == len(read) else ()
    if not found or not all(found):
        raise InvalidOption(name, text, 'names separated by commas, or JSON such as ["a,b", "c"]')
    return found


def _patterns(name: str, text: str) -> tuple[str, ...]:
    for one in _names(name, text):
        try:
            check_pattern(one)
        except InvalidName:
            allowed = "topics or patterns such as orders.*.created or orders.>, separated by commas"
            raise InvalidOption(name, one, allowed) from None
    return _names(name, text)


def _regex(name: str, text: str) -> str:
    check_regex(name, text)
    return text


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text) or not int(text):
        raise InvalidOption(name, text, "a number above 0")
    return int(text)


def _size(name: str, text: str) -> int:
    matched = re.fullmatch(r"(\d{1,15})\s*([kmg]?)b?", text.strip().lower())
    if matched is None or not int(matched[1]):
        raise InvalidOption(name, text, "a size in bytes, such as 134217728 or 128m")
    return int(matched[1]) * UNITS[matched[2]]


def _time(name: str, text: str) -> int:
    """Return us since 1970; a time without a zone is UTC."""
    if re.fullmatch(r"\d{1,15}", text):
        return int(text) * 1000
    try:
        return since_epoch_us(parse_time(text))
    except ValueError:
        allowed = "milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z"
        raise InvalidOption(name, text, allowed) from None


def _offset(found: object) -> int:
    if not isinstance(found, int | str) or isinstance(found, bool):
        raise ValueError(found)
    return int(found)


def _positions(name: str, text: str) -> Positions:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        found = {
            str(queue): {int(one): _offset(offset) for one, offset in partitions.items()}
            for queue, partitions in read_integer_json(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        found = {}
    if not found or any(
        not (0 <= one <= 9 and EARLIEST_OFFSET <= offset < OFFSET_MAX)
        for _, one, offset in _offsets(found)
    ):
        allowed = 'earliest, latest, or JSON such as {"orders": {"0": 23}} (-2 earliest, -1 latest)'
        raise InvalidOption(name, text, allowed)
    return found


READERS: Readers = {
    "path": ("path", _text),
    "vhost": ("vhost", _vhost),
    "streams": ("streams", _names),
    "queues": ("queues", _names),
    "subscribe": ("subscribe", _patterns),
    "subscribePattern": ("subscribe_pattern", _regex),
    "startingOffsets": ("starting_offsets", _positions),
    "endingOffsets": ("ending_offsets", _positions),
    "startingTimestamp": ("starting_us", _time),
    "endingTimestamp": ("ending_us", _time),
    "includeHeaders": ("include_headers", read_flag),
    "ordering": ("ordering", choice_reader(NONE, QUEUE)),
    "maxPartitionBytes": ("max_partition_bytes", _size),
    "minPartitions": ("min_partitions", _count),
    "batchRows": ("batch_rows", _count),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _size),
    "failOnDataLoss": ("fail_on_data_loss", read_flag),
    "damaged": ("damaged", choice_reader(FAIL, SKIP, KEEP)),
    "syncTail": ("sync_tail", read_flag),
}
"""For each option the field that takes it, and the function that reads it."""
