"""The options of the sink `mesh`, checked before anything is sent. docs/spark.md has the table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.names import check_cluster, check_topic
from mesh.settings import TYPES

from ..errors import ContradictoryOptions, InvalidOption
from ..options import (
    Readers,
    choice_reader,
    name_reader,
    read_flag,
    read_given_options,
    read_integer_json,
)
from .pacing import Schedule

TOPICS, QUEUES, EXCHANGE = "topics", "queues", "exchange"
ROWS, OFFSETS = "rows", "offsets"
SKIP, SEND = "skip", "send"
PAUSES_MAX, US_MAX = 10_000, 10**18
"""How many pauses a replay may have; exclusive limit of times in us since 1970, and of pauses in us."""
SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options, which it passes to the sink, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of one query. Where names differ from those of the options, READERS tells."""

    to: str = TOPICS
    """`topics` of the mesh: at most once. `queues` and streams of a broker, or its `exchange`: stored once."""
    topic: str | None = None
    """The topic of every message; None: that of its row."""
    queue: str | None = None
    exchange: str | None = None
    broker: str = "broker"
    vhost: str = "/"
    mandatory: bool = True
    """Whether a message that no queue wants is an error; otherwise the broker drops it."""
    id: str = ""
    """Identifies what is sent: repeated under the same id, it is stored once. Empty: a new one for each query."""
    numbering: str = ROWS
    """What a row's sequence is: `rows`, its number in its partition, or `offsets`, the offset it was captured at."""
    lanes: Mapping[str, str] = field(default_factory=dict)
    """By queue/partition, for `offsets`: tells the one that was captured from others that had this name before."""
    replay: bool = False
    """Whether to mark every message as replayed."""
    replays: str = SKIP
    """Whether to skip or to send rows that are marked as replayed already."""
    speed: float = 0.0
    """1: at the original speed, 10: ten times as fast; 0: as fast as possible."""
    rate: float = 0.0
    """Upper limit of messages per second and task; 0: no limit."""
    rehearse: bool = False
    """Join and read the first rows, but send nothing."""
    start_us: int = 0
    """When `origin_us` is due, by the wall clock; the same for all tasks."""
    origin_us: int = 0
    pauses: tuple[tuple[int, int], ...] = ()
    """(original time in us, total time in us cut from all pauses up to there)."""
    cluster: str = "spark"
    """The cluster that the tasks join."""
    timeout_s: float = 30.0
    """How long to wait for somebody to send to, and for the last confirms."""
    report: str = ""
    """A file on the driver's machine, which gets one line of JSON for each commit."""
    progress: str = ""
    """A directory where each task keeps a file with its progress."""
    joining: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `mesh.join`."""

    @property
    def paced(self) -> bool:
        return bool(self.speed or self.rate)

    def schedule(self) -> Schedule:
        return Schedule(self.start_us, self.origin_us, self.speed, self.rate, self.pauses)


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read and check all options. Raises UnknownOption, InvalidOption, ContradictoryOptions, each in one line."""
    given = read_given_options(options, READERS, TYPES, SPARK_OPTIONS)
    found = SinkOptions(**given.values, joining=given.settings)
    _check(found)
    return found


def _check(options: SinkOptions) -> None:
    for name, value, needed in (
        ("queue", options.queue, QUEUES),
        ("exchange", options.exchange, EXCHANGE),
    ):
        if value is not None and options.to != needed:
            raise ContradictoryOptions((name, "to"), f"{name} needs to={needed}")
    if options.topic is not None and options.to == QUEUES:
        raise ContradictoryOptions(
            ("topic", "to"), "messages sent to a queue have its name as the key"
        )
    if options.numbering == OFFSETS and not options.id:
        raise ContradictoryOptions(("numbering", "id"), "numbering=offsets needs an id")
    if options.speed and not options.start_us:
        raise ContradictoryOptions(("speed", "startMicros"), "set when the first message is due")


def _text(name: str, text: str) -> str:
    if not text:
        raise InvalidOption(name, text, "some text")
    return text


def _target(name: str, text: str) -> str:
    lower = text.lower()
    if lower not in (TOPICS, QUEUES, "streams", EXCHANGE):
        raise InvalidOption(name, text, "topics, queues, streams or exchange")
    return QUEUES if lower == "streams" else lower


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:  # Refuses NaN, too.
        raise InvalidOption(name, text, "a number, 0 or more")
    return found


def _micros(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidOption(name, text, "microseconds since 1970")
    return int(text)


def _pauses(name: str, text: str) -> tuple[tuple[int, int], ...]:
    try:
        found = tuple((int(at), int(cut_us)) for at, cut_us in read_integer_json(text))
    except (ValueError, TypeError, RecursionError):
        found = ((0, -1),)
    if (
        len(found) > PAUSES_MAX
        or any(not (0 <= at < US_MAX and 0 <= cut_us < US_MAX) for at, cut_us in found)
        or list(found) != sorted(found)
    ):
        allowed = (
            f"JSON, at most {PAUSES_MAX} sorted pairs of microseconds since 1970 and microseconds"
        )
        raise InvalidOption(name, text[:80], allowed)
    return found


def _lanes(name: str, text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise InvalidOption(name, text[:80], 'JSON such as {"orders/0": "of May"}')
    return found


READERS: Readers = {
    "to": ("to", _target),
    "topic": ("topic", name_reader(check_topic)),
    "queue": ("queue", _text),
    "exchange": ("exchange", _text),
    "broker": ("broker", name_reader(check_cluster)),
    "vhost": ("vhost", _text),
    "mandatory": ("mandatory", read_flag),
    "id": ("id", _text),
    "numbering": ("numbering", choice_reader(ROWS, OFFSETS)),
    "lanes": ("lanes", _lanes),
    "replay": ("replay", read_flag),
    "replays": ("replays", choice_reader(SKIP, SEND)),
    "speed": ("speed", _number),
    "ratePerTask": ("rate", _number),
    "rehearse": ("rehearse", read_flag),
    "startMicros": ("start_us", _micros),
    "originMicros": ("origin_us", _micros),
    "pauses": ("pauses", _pauses),
    "cluster": ("cluster", name_reader(check_cluster)),
    "timeoutSeconds": ("timeout_s", _number),
    "report": ("report", _text),
    "progress": ("progress", _text),
}
"""For each option the field that takes it, and the function that reads it."""
