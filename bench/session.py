"""One run of the bench: rounds over all cases, in an order that changes from round to round.

Cases are interleaved within a round so that those whose ratio is taken run close together in time. Results from before
Ctrl-C or a failure are kept.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING

from .figure import Figure, Round, make_figure
from .processes import ANSWER_S_MAX, MeasurementFailed, Troupe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .plan import Case, Family, Outcome, Row, Scale


class Session:
    """Runs the families' cases and makes their figures.

    Args:
        say: called with a line of text when a run has ended.
        begin: called with a line of text when a run begins, which says how long it may take.
    """

    def __init__(
        self,
        families: Sequence[Family],
        *,
        rounds: int,
        scale: Scale,
        say: Callable[[str], None],
        begin: Callable[[str], None] = lambda _: None,
        profile: str | None = None,
    ) -> None:
        self._families, self._rounds, self._scale = families, rounds, scale
        self._say, self._begin, self._profile = say, begin, profile
        self._begun = 0
        self._took_s: dict[str, float] = {}
        self._outcomes: dict[str, dict[int, Outcome]] = {}
        self._failed: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self) -> None:
        """Run all rounds. KeyboardInterrupt passes through, after all child processes have ended."""
        for number in range(self._rounds):
            for family in self._families:
                if number >= family.rounds_max:
                    continue
                for case in random.Random(number).sample(family.cases, len(family.cases)):
                    self._run_case(case, number)

    def figures(self) -> list[Figure]:
        return [self._figure(row) for family in self._families for row in family.rows]

    def _run_case(self, case: Case, number: int) -> None:
        began_s = time.monotonic()
        place = f"round {number + 1}/{self._rounds}  {case.name}"
        self._begun += 1
        self._begin(f"run {self._begun} of {self._runs}, {place}, {self._lasting(case)}")
        try:
            with Troupe(self._profile) as troupe:
                outcome = case.run(troupe, self._scale)
        except Exception as error:  # Any error: hours of earlier results must not be lost.
            why, more = explained(error)
            self._failed[case.name] += 1
            self.failures.append(f"{case.name}, round {number + 1}: {why}")
            self._say("\n".join([f"{place}: FAILED: {why}", *more]))
            return
        self._outcomes.setdefault(case.name, {})[number] = outcome
        self._took_s[case.name] = time.monotonic() - began_s
        words = ", ".join(f"{name} {value:,.6g}" for name, value in outcome.values.items())
        if outcome.wrong:
            words = f"LOST OR WRONG {outcome.wrong:,}"
        words = ", ".join(filter(None, [words, outcome.caveat]))
        self._say(f"{place}: {words} ({time.monotonic() - began_s:.1f} s)")

    @property
    def _runs(self) -> int:
        """Runs in all rounds."""
        return sum(
            len(family.cases) * min(self._rounds, family.rounds_max) for family in self._families
        )

    def _lasting(self, case: Case) -> str:
        if case.seconds_max:
            return f"at most {case.seconds_max(self._scale):.0f} s"
        if case.name in self._took_s:
            return f"{self._took_s[case.name]:.0f} s the round before"
        return f"at most {ANSWER_S_MAX:.0f} s an answer"

    def _figure(self, row: Row) -> Figure:
        outcomes = self._outcomes.get(row.case, {})
        references = self._outcomes.get(row.reference[0], {}) if row.reference else {}
        rounds = [
            Round(
                value=None if outcome.wrong else outcome.values.get(row.value),
                reference=value_of(row, references.get(number)),
                wrong=outcome.wrong,
                detail={**outcome.detail, "caveat": outcome.caveat},
            )
            for number, outcome in outcomes.items()
        ]
        failed = self._failed[row.case]
        return make_figure(row.name, row.unit, rounds, row.bounds, worst=row.worst, failed=failed)


def explained(error: Exception) -> tuple[str, list[str]]:
    """Return the error in one line, and the lines to print below it: notes, or the traceback of a bug in the bench."""
    if isinstance(error, MeasurementFailed | OSError):
        return str(error), list(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}", traceback.format_exception(error)


def value_of(row: Row, reference: Outcome | None) -> float | None:
    """Return the reference's value, or None if the reference lost messages."""
    if row.reference is None or reference is None or reference.wrong:
        return None
    return reference.values.get(row.reference[1])
