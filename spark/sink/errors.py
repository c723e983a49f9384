"""Errors of sending rows; the text of each is one line.

SinkError (CaptureError)
├── MissingColumn     the rows lack a column that is needed
├── WrongColumn       a column has a type that cannot be sent
├── MissingValue      null in a column that says where a row goes, or when
├── HeadersTooLarge   a row's headers exceed the limit of a message
├── Unreachable       there is nobody to send to: no member, no broker, no suitable keys
├── Disordered        rows of one queue came from two tasks, or not in the order of their offsets
└── SendingFailed     sending began and failed: how many messages had been handed over
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import CaptureError


class SinkError(CaptureError):
    """Root of what the sink raises, besides errors of options."""


class MissingColumn(SinkError, ValueError):
    """The sink needs column `name`; the text says `why`, and which columns the rows have."""

    def __init__(self, name: str, why: str, known: Iterable[str]) -> None:
        super().__init__(f"no column {name!r}, {why}: the rows have {', '.join(known)}")
        self.name = name


class WrongColumn(SinkError, ValueError):
    """Column `name` has Spark's type `type`, which cannot be sent."""

    def __init__(self, name: str, type: str, wanted: str) -> None:  # noqa: A002
        super().__init__(f"column {name!r} is {type}: want {wanted}; cast it")
        self.name, self.type = name, type


class MissingValue(SinkError, ValueError):
    """At least `count` rows have null in column `name`, as damaged records have that were kept."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(
            f"{name!r} is null in {count} rows of a batch, and has no default: filter such rows "
            f"out, for example with `{name} IS NOT NULL`"
        )
        self.name, self.count = name, count


class HeadersTooLarge(SinkError, ValueError):
    """The headers of `whose` row are too large: `what`."""

    def __init__(self, whose: str, what: str) -> None:
        super().__init__(f"{whose}: {what} when sent; filter the row out, for example with --where")
        self.whose, self.what = whose, what


class Unreachable(SinkError):
    """Nothing was sent: `why`."""

    def __init__(self, whom: str, why: str) -> None:
        super().__init__(f"{whom} cannot be reached: {why}")
        self.whom, self.why = whom, why


class Disordered(SinkError):
    """Rows that would lose their order, or would not be recognised if they were sent again."""

    def __init__(self, lane: str, what: str) -> None:
        super().__init__(
            f"{lane}: {what}; read with ordering=queue, and keep the rows in that order"
        )
        self.lane = lane


class SendingFailed(SinkError):
    """Sending failed: `why`, after `sent` messages of one task had been handed over, refused ones included."""

    def __init__(self, why: str, sent: int) -> None:
        super().__init__(f"{why} ({sent} messages of this task had been handed over)")
        self.why, self.sent = why, sent
