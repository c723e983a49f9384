"""The confirms that one caller waits for, and what became of the messages that it handed over to a publisher.

A refusal is the outcome of some of them; an error says that the outcome of others will never be known. A caller is
told one of the two, with a note of what was refused besides.
"""

from __future__ import annotations

from collections import Counter

from mesh.waker import Waker

from ..errors import DurableError
from .outbox import Waiter


class PendingConfirms:
    """The confirms of what one caller handed over: several runs of sequences if other callers came in between."""

    def __init__(self) -> None:
        self.runs: list[Waiter] = []
        self.waker = Waker()

    @property
    def count(self) -> int:
        return sum(run.end - run.first for run in self.runs)

    @property
    def refusal(self) -> DurableError | None:
        """The first refusal."""
        return next((run.refusal for run in self.runs if run.refusal is not None), None)

    @property
    def error(self) -> DurableError | None:
        """The error to raise: an unknown outcome before a refusal, which is then added as a note."""
        for run in self.runs:
            if run.error is not None:
                return run.error
        return self.refusal

    def note_refused(self, error: DurableError) -> None:
        """Add to the error that is raised how many messages were refused, and why if that is another one."""
        refusal = self.refusal
        if refusal is not None:
            counts = sum((run.refused for run in self.runs), Counter[str]())
            note_refused(error, counts, "" if refusal is error else f": {refusal}")


def note_refused(error: DurableError, counts: Counter[str], why: str = "") -> None:
    """Add to an error how many messages were refused, unless it is the only one and the error says why.

    Args:
        counts: messages by class of error.
    """
    if counts.total() > 1 or why:
        error.add_note(f"{refused_text(counts)}{why}")


def refused_text(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    return f"{counts.total()} messages were refused" + (f" ({kinds})" if len(counts) > 1 else "")
