"""The progress of a streaming query, as JSON that Spark keeps in its checkpoint.

    {"store": "5f2c...", "position": 8231}                     everything before this log position is done
    {..., "last": [8230, "9b01..."]}                           the record before it, to check that the log is the same
    {..., "absent": [[1, 900]]}                                log positions that were gone when the query began
    {..., "from": {"3": 120}}                                  offsets to begin with, by lane id
    {..., "since": 1750000012000000}                           time to begin with, in us since 1970
    {..., "cuts": [4100]} or {..., "groups": 8}                how the batch that ends here is shared out

A message counts at the log position that its record had first, wherever compaction has carried it since. So each
one is in exactly one batch, and a batch is the same when it is planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import CaptureError
from .contents import RecordDigest
from .shares import Shares
from .spans import Span, without


@dataclass(frozen=True, slots=True)
class Progress:
    store: str
    """Tells this store from others."""
    position: int
    absent: tuple[Span, ...] = ()
    """Log positions, in order, that were gone when the query began and so do not count as missed."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """By lane, the first offset to be read."""
    shares: Shares | None = None
    """How the batch that ends here is shared out; None if none ends here, or if an earlier version planned it."""
    since_us: int = 0
    """Messages that the broker received before this time are not read."""
    last: RecordDigest | None = None
    """The last record before `position`; None if there was none, or if an earlier version wrote this."""

    def advanced_to(self, position: int, last: RecordDigest | None) -> Progress:
        absent = tuple(one for one in self.absent if one[1] > position)
        return replace(self, position=position, absent=absent, shares=None, last=last)

    def missed(self, gone: Iterable[Span]) -> list[Span]:
        """Return which of these log positions existed when the query began."""
        return list(without(gone, self.absent))

    def with_shares(self, shares: Shares) -> Progress:
        return replace(self, shares=shares)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"store": self.store, "position": self.position}
        if self.last is not None:
            found["last"] = list(self.last)
        if self.absent:
            found["absent"] = [list(one) for one in self.absent]
        if self.starts:
            found["from"] = {str(lane): offset for lane, offset in self.starts.items()}
        if self.since_us:
            found["since"] = self.since_us
        if self.shares is not None and self.shares.groups:
            found["groups"] = self.shares.groups
        elif self.shares is not None:
            found["cuts"] = list(self.shares.cuts)
        return found


def from_json(found: Mapping[str, Any]) -> Progress:
    """Raises CaptureError if the checkpoint was not written by this source."""
    try:
        return Progress(
            str(found["store"]), int(found["position"]),
            tuple((int(low), int(high)) for low, high in found.get("absent", ())),
            {int(lane): int(offset) for lane, offset in found.get("from", {}).items()},
            _shares(found), int(found.get("since", 0)), _last(found),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CaptureError(
            f"the checkpoint of this query was not written by mesh-capture: {found}"
        ) from None


def _shares(found: Mapping[str, Any]) -> Shares | None:
    if "cuts" not in found and "groups" not in found:
        return None
    return Shares(tuple(map(int, found.get("cuts", ()))), int(found.get("groups", 0)))


def _last(found: Mapping[str, Any]) -> RecordDigest | None:
    if "last" not in found:
        return None
    position, digest = found["last"]
    return RecordDigest(int(position), str(digest))
