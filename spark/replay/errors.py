"""Errors of a replay, besides those of the sink and the source.

ReplayError (CaptureError)
├── QueueMissing    the broker has no queue or stream of the name; nothing was sent
├── TopicRefused    a message would be sent to an invalid topic; nothing was sent
├── TooManyPauses   more pauses are to be cut than is possible; nothing was sent
└── ReplayFailed    it began and did not finish; `report` has what is known of it

ReplayInterrupted (KeyboardInterrupt) reports the same of a replay that the user interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CaptureError

if TYPE_CHECKING:
    from ..sink.report import Report


SHOWN_MAX = 20
"""Most names in one line."""


class ReplayError(CaptureError):
    """Root of the errors of a replay."""


class QueueMissing(ReplayError):
    """Broker `broker` lacks `names`, or hides them from `cluster`, which has no permission for them."""

    def __init__(self, broker: str, names: Sequence[str], cluster: str) -> None:
        shown = ", ".join(map(repr, names[:SHOWN_MAX]))
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        super().__init__(
            f"broker {broker!r} has no queue or stream {shown}{more}: declare them (`mesh-broker "
            "definitions` copies all of one broker to another), or select others with --queue and "
            f"--stream; if they exist, allow cluster {cluster!r} to publish to them "
            f"(`mesh-broker set-permission {cluster} --write amq.default`)"
        )
        self.broker, self.names = broker, tuple(names)


class TopicRefused(ReplayError):
    """A topic, as renamed for sending, is not valid: `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; nothing was sent")
        self.why = why


class TooManyPauses(ReplayError):
    """More than `most` pauses are longer than --max-gap."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} pauses exceed --max-gap: choose a longer one")
        self.most = most


class ReplayFailed(ReplayError):
    """The replay failed: `why`. `report` has the results of finished tasks; `sent` counts what all tasks had noted as
    handed over, refused messages included."""

    def __init__(self, why: str, report: Report, sent: int) -> None:
        super().__init__(f"{why}; at least {sent} messages had been handed over")
        self.why, self.report, self.sent = why, report, sent


class ReplayInterrupted(KeyboardInterrupt):
    """The replay was interrupted; `report` and `sent` as in ReplayFailed."""

    def __init__(self, report: Report, sent: int) -> None:
        super().__init__(f"interrupted; at least {sent} messages had been handed over")
        self.report, self.sent = report, sent
