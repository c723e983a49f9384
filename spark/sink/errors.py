"""What may go wrong while rows are sent; the text of each is one line.

SinkError (CaptureError)
├── MissingColumn     the rows lack what has to be sent
├── WrongColumn       a column is of a type that cannot be sent
├── MissingValue      rows have nothing in a column that says where they go, or when
├── HeadersTooLarge   a row's headers are more than a message may have
├── Unreachable       nobody there to send to: no member, no broker, no keys that fit
├── Disordered        rows of one queue came from two tasks, or not in the order of their offsets
└── SendingFailed     it began, and did not end: how many messages had been handed over
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import CaptureError


class SinkError(CaptureError):
    """Root of what the sink raises, beside wrong options."""


class MissingColumn(SinkError, ValueError):
    """The sink needs `name`, and the rows have `known`."""

    def __init__(self, name: str, why: str, known: Iterable[str]) -> None:
        super().__init__(f"no column {name!r}, {why}: the rows have {', '.join(known)}")
        self.name = name


class WrongColumn(SinkError, ValueError):
    """Column `name` is of Spark's `type`."""

    def __init__(self, name: str, type: str, wanted: str) -> None:  # noqa: A002
        super().__init__(f"column {name!r} is {type}: want {wanted}; cast it")
        self.name, self.type = name, type


class MissingValue(SinkError, ValueError):
    """`count` rows, at least, have null in column `name`: as damaged records have that are kept."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(
            f"{name!r} is null in {count} rows of a batch, and nothing else can stand for it: leave "
            f"such rows out, as by `{name} IS NOT NULL`"
        )
        self.name, self.count = name, count


class HeadersTooLarge(SinkError, ValueError):
    """Those of `whose`: `what`."""

    def __init__(self, whose: str, what: str) -> None:
        super().__init__(f"{whose}: {what}, as they are sent; leave it out, as by --where")
        self.whose, self.what = whose, what


class Unreachable(SinkError):
    """Nothing was sent: `why`."""

    def __init__(self, whom: str, why: str) -> None:
        super().__init__(f"{whom} cannot be reached: {why}")
        self.whom, self.why = whom, why


class Disordered(SinkError):
    """What would not keep its order, or be recognised when it comes again."""

    def __init__(self, lane: str, what: str) -> None:
        super().__init__(
            f"{lane}: {what}; read with ordering=queue, and keep the rows in that order"
        )
        self.lane = lane


class SendingFailed(SinkError):
    """After `sent` messages of one task, what was refused among them."""

    def __init__(self, why: str, sent: int) -> None:
        super().__init__(f"{why} ({sent} messages of this task had been handed over)")
        self.why, self.sent = why, sent
