"""A figure: the median over rounds of a value, the median of its reference, and whether the figure meets its mark.

    value     median of the rounds' values        ratio  median of the rounds' value / reference
    reference median of the rounds' references    holds  None: reported only, nothing promised

The ratio is taken within each round, where both ran within seconds of each other: the speed of the machine drifts over
time by more than most differences measured here. A round that lost messages has no value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPORTED = "reported"


@dataclass(frozen=True, slots=True)
class Bound:
    """One condition on a figure, as in "ratio at least 2.0"; the bounds of a figure are its mark."""

    of: Literal["value", "ratio"]
    sense: Literal["at least", "at most"]
    limit: float

    def holds(self, value: float | None, ratio: float | None) -> bool:
        measured = value if self.of == "value" else ratio
        if measured is None:
            return False
        return measured >= self.limit if self.sense == "at least" else measured <= self.limit

    def __str__(self) -> str:
        return f"{self.of} {self.sense} {self.limit:,g}"


def at_least(limit: float) -> Bound:
    return Bound("value", "at least", limit)


def at_most(limit: float) -> Bound:
    return Bound("value", "at most", limit)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one figure. `value` is None when the run had lost, duplicated, damaged or reordered messages."""

    value: float | None
    reference: float | None = None
    wrong: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        if self.value is None or not self.reference:
            return None
        return self.value / self.reference

    def as_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "reference": self.reference,
            "ratio": self.ratio,
            "wrong": self.wrong,
            **self.detail,
        }


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table and one entry of the JSON file."""

    name: str
    value: float | None
    unit: str
    reference: float | None
    ratio: float | None
    mark: str
    holds: bool | None
    runs: list[dict[str, Any]]
    failed: int = 0
    """Rounds without a result: the case failed, or a role died or did not answer in time."""

    @property
    def wrong(self) -> int:
        """Messages lost, duplicated, damaged or out of order, over all rounds."""
        return sum(run["wrong"] for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def make_figure(
    name: str,
    unit: str,
    rounds: Sequence[Round],
    bounds: Sequence[Bound] = (),
    *,
    worst: bool = False,
    failed: int = 0,
) -> Figure:
    """Combine the rounds into a figure, which has no value if any round has none: a run that lost messages has no rate.

    Args:
        worst: the value is the highest of the rounds instead of the median, for what must not happen even once.
        failed: count of rounds that could not be measured and are not in `rounds`; with any, no mark holds.
    """
    values = [entry.value for entry in rounds]
    complete = bool(values) and None not in values
    value = None
    if complete:
        value = max(value for value in values if value is not None) if worst else middle(values)
    ratio = middle([entry.ratio for entry in rounds]) if complete else None
    return Figure(
        name=name,
        value=value,
        unit=unit,
        reference=middle([entry.reference for entry in rounds]),
        ratio=ratio,
        mark=" and ".join(map(str, bounds)) or REPORTED,
        holds=not failed and all(bound.holds(value, ratio) for bound in bounds) if bounds else None,
        runs=[entry.as_json() for entry in rounds],
        failed=failed,
    )


def middle(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are not None, or None without any."""
    present = [value for value in values if value is not None]
    return median(present) if present else None


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` of all samples do not exceed (nearest rank)."""
    assert samples, "no samples, no percentile"
    assert 0 < share <= 1, "a share, not a percentage"
    ordered = sorted(samples)
    rank = ceil(len(ordered) * share - 1e-9)  # 100 * 0.07 is 7.000000000000001.
    return ordered[max(rank, 1) - 1]


def document(machine: Mapping[str, Any], commit: str, figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the content of the JSON file that every bench command writes."""
    return {
        "machine": dict(machine),
        "commit": commit,
        "figures": [figure.as_json() for figure in figures],
    }
