"""The queues and streams of one vhost in a broker's directory, and which of them a query wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from durable.broker.directory import LOG_FOLDER, is_deleted, vhost_names, vhost_path
from durable.errors import UnknownVhost

from ..errors import DataLost, InvalidOption, NoCapture, NothingSelected
from .contents import LaneSpan
from .freed import freed_offsets
from .lanes import Lane
from .options import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    OFFSET_MAX,
    Options,
    Positions,
)
from .plan import NO_LIMIT, Offsets, Selected, Times
from .spans import Span
from .stored import StoredLog

T = TypeVar("T")
EMPTY_SPAN = LaneSpan(0, 0, 0)
ATTEMPTS = 5
"""Attempts at planning while a broker frees segments."""


@contextmanager
def opening_errors(data: Path) -> Iterator[None]:
    """Report errors of opening a broker's directory in the block.

    Raises:
        NoCapture: it is not on this machine, or this user may not read it.
    """
    try:
        if not data.is_dir():
            raise NoCapture(str(data), "no such directory on this machine")
        if not (data / "vhosts").is_dir():
            raise NoCapture(str(data), "not a broker's directory: there is no `vhosts` in it")
        yield
    except PermissionError as error:
        raise NoCapture(str(data), f"not readable by this user: {error}") from None


class Catalog:
    """What a query may read; `refresh` brings it up to date."""

    def __init__(self, options: Options) -> None:
        self._options, self._data = options, Path(options.path)
        self.log = StoredLog(vhost_path(self._data, options.vhost) / LOG_FOLDER, options.keys)

    def check_exists(self) -> None:
        """Raises NoCapture if no broker ever stored anything here, UnknownVhost if there is no such vhost."""
        with opening_errors(self._data):
            if not self.log.path.is_dir() or is_deleted(self.log.path.parent):
                vhost = self._options.vhost
                # The name of this vhost may be listed although its log is not there, or not yet.
                names = [one for one in vhost_names(self._data) if one != vhost]
                raise UnknownVhost(vhost, names, f"existing vhosts: {', '.join(names) or 'none'}")

    def refresh(self) -> None:
        """Read what has been written since.

        Raises:
            NoCapture, UnknownVhost: as `check_exists` does.
            ForeignStore, NewerFormat: it is something else, or of a later release.
            StoreKeyMissing, StoreKeyWrong, KeysUnusable: it is encrypted, see decryption.py.
        """
        self.check_exists()
        with opening_errors(self._data):
            self.log.refresh()

    def retry_plan(self, plan: Callable[[], T]) -> T:
        """Return what `plan` returns; it is called again if a segment that it reads has been freed meanwhile.

        Raises:
            DataLost: that happened ATTEMPTS times.
        """
        for _ in range(ATTEMPTS):
            try:
                return plan()
            except FileNotFoundError:
                self.refresh()
        raise DataLost(
            f"segments were freed {ATTEMPTS} times while they were counted",
            "run it again to read what is left",
        )

    def check_selection(self) -> None:
        """Raises NothingSelected if something that the options name is not there."""
        self._check_names("stream", self._options.streams, is_stream=True)
        self._check_names("queue", self._options.queues, is_stream=False)
        for positions in (self._options.starting_offsets, self._options.ending_offsets):
            if isinstance(positions, Mapping):
                self._check_positions(positions)

    def _check_names(self, kind: str, names: Sequence[str] | None, *, is_stream: bool) -> None:
        lanes = self.log.lanes().values()
        known = {lane.queue for lane in lanes if lane.is_stream == is_stream}
        for name in names or ():
            if name not in known:
                raise NothingSelected(kind, name, known)

    def _check_positions(self, positions: Mapping[str, Mapping[int, int]]) -> None:
        known = {(lane.queue, lane.partition) for lane in self.lanes().values()}
        for queue, partitions in positions.items():
            for partition in partitions or (0,):
                if (queue, partition) not in known:
                    kind = f"partition {partition} of" if partition else "queue or stream"
                    raise NothingSelected(kind, queue, {one for one, _ in known})

    def lanes(self) -> dict[int, Lane]:
        """Return the wanted lanes."""
        options, lanes = self._options, self.log.lanes()
        if options.streams is None and options.queues is None:
            return lanes
        streams, queues = options.streams or (), options.queues or ()
        return {
            number: lane
            for number, lane in lanes.items()
            if lane.queue in (streams if lane.is_stream else queues)
        }

    def select_batch(self) -> Selected:
        """Return everything that a batch query reads.

        Raises:
            NothingSelected: as `check_selection` does.
            DataLost: messages at or after the offset to begin with are gone.
            InvalidOption: the offset to begin with is behind the end.
        """
        self.check_selection()
        options, spans = self._options, self.log.spans()
        table: dict[int, Offsets] = {}
        for number, lane in self.lanes().items():
            span = spans.get(number, EMPTY_SPAN)
            end = _end_offset(lane, options.ending_offsets, span)
            start = options.starting_offsets or EARLIEST
            first = self.first_offset(number, lane, start, span, end)
            table[number] = Offsets(lane.queue, lane.partition, first, end)
        end_us = NO_LIMIT if options.ending_us is None else options.ending_us
        return Selected(self.log, table, Times(options.starting_us or 0, end_us), 0, self.log.end)

    def first_offset(
        self, number: int, lane: Lane, start: Positions, span: LaneSpan, high: int = OFFSET_MAX
    ) -> int:
        """Return the offset to begin with in a lane. `span` is what the log holds of it, `high` the end of reading.

        Raises:
            DataLost, InvalidOption: as `select_batch` does.
        """
        offset = _requested_offset(lane, start, EARLIEST_OFFSET)
        if offset == LATEST_OFFSET:
            return span.end
        if offset == EARLIEST_OFFSET:
            return 0
        if offset > span.end:
            value = {lane.queue: {lane.partition: offset}}
            raise InvalidOption("startingOffsets", value, f"at most {span.end}, which is its end")
        if self._options.fail_on_data_loss:
            log = self.log
            gone = freed_offsets(
                log.contents, log.carried, number, low=offset, high=high, end=span.end
            )  # fmt: skip
            if gone:
                raise DataLost(_describe_freed(lane, gone))
        return offset


def _describe_freed(lane: Lane, gone: Sequence[Span]) -> str:
    (low, after), more = gone[0], sum(end - first for first, end in gone[1:])
    queue_label = f"{lane.queue!r}" + (f", partition {lane.partition}," if lane.partition else "")
    others = f" and {more} later ones" if more else ""
    return f"offsets {low} to {after - 1} of {queue_label}{others} were freed (retention or compaction)"


def _requested_offset(lane: Lane, positions: Positions, default: int) -> int:
    """Return the offset asked for; -2 is the earliest, -1 the latest."""
    if isinstance(positions, str):
        return {EARLIEST: EARLIEST_OFFSET, LATEST: LATEST_OFFSET}[positions]
    return positions.get(lane.queue, {}).get(lane.partition, default)


def _end_offset(lane: Lane, positions: Positions, span: LaneSpan) -> int:
    offset = _requested_offset(lane, positions, LATEST_OFFSET)
    if offset == EARLIEST_OFFSET:
        return span.first
    return OFFSET_MAX if offset == LATEST_OFFSET else offset
