"""What may go wrong with a replay, beside what the sink and the source say.

ReplayError (CaptureError)
├── QueueMissing    the broker has no queue or stream of the name; nothing was sent
├── TopicRefused    a message would be sent to what is no topic; nothing was sent
├── TooManyPauses   to be cut; nothing was sent
└── ReplayFailed    it began and did not end; `report` says what is known of it

ReplayInterrupted (KeyboardInterrupt) says the same of one that somebody ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CaptureError

if TYPE_CHECKING:
    from ..sink.report import Report


SHOWN_MAX = 20
"""Names that one line holds."""


class ReplayError(CaptureError):
    """Root of these."""


class QueueMissing(ReplayError):
    """Broker `broker` lacks `names`, or tells nothing of them to `cluster`, which may do nothing with them."""

    def __init__(self, broker: str, names: Sequence[str], cluster: str) -> None:
        shown = ", ".join(map(repr, names[:SHOWN_MAX]))
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        super().__init__(
            f"broker {broker!r} has no queue or stream {shown}{more}: declare them (`mesh-broker "
            "definitions` takes all of one broker to another), or name those to be replayed with --queue "
            f"and --stream; of one that is there cluster {cluster!r} hears once it may publish to it "
            f"(`mesh-broker set-permission {cluster} --write amq.default`)"
        )
        self.broker, self.names = broker, tuple(names)


class TopicRefused(ReplayError):
    """`why` a topic is none, by the name under which it would be sent."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; nothing was sent")
        self.why = why


class TooManyPauses(ReplayError):
    """More than `most` pauses are longer than what --max-gap says."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} pauses are to be cut: choose a longer --max-gap")
        self.most = most


class ReplayFailed(ReplayError):
    """`why`; of what was sent `report` has what the tasks that ended told, `sent` what all noted, what was
    refused among it."""

    def __init__(self, why: str, report: Report, sent: int) -> None:
        super().__init__(f"{why}; {sent} messages at least had been handed over")
        self.why, self.report, self.sent = why, report, sent


class ReplayInterrupted(KeyboardInterrupt):
    """`report` and `sent` as in ReplayFailed."""

    def __init__(self, report: Report, sent: int) -> None:
        super().__init__(f"interrupted; {sent} messages at least had been handed over")
        self.report, self.sent = report, sent
