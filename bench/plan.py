"""What is measured: cases, each run once per round, and rows, each of which compares two of them.

Case    one set-up of processes; running it gives an Outcome of named values
Row     one value of one case beside a reference value of another, with bounds
Family  cases that run one after the other within a round, and their rows
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .figure import Bound
    from .processes import Troupe

QUICK_PART = 20


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured. `quick` is for trying the harness: its figures mean nothing."""

    quick: bool = False

    def count(self, full: int) -> int:
        return max(full // QUICK_PART, 1) if self.quick else full

    def seconds(self, full: float) -> float:
        return full / 5 if self.quick else full


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of one case. `wrong` counts lost, duplicated, damaged or reordered messages."""

    values: Mapping[str, float]
    wrong: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)
    caveat: str = ""
    """Why the values are not of the load that was asked for; shown wherever the values are."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    run: Callable[[Troupe, Scale], Outcome]
    seconds_max: Callable[[Scale], float] | None = None
    """Returns the longest time a run may take, including a slow start; None if only each answer has a time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`value` of `case`, beside `reference` (case, value) if there is one."""

    name: str
    unit: str
    case: str
    value: str
    reference: tuple[str, str] | None = None
    bounds: tuple[Bound, ...] = ()
    worst: bool = False


def row(
    name: str, unit: str, case: str, value: str, *bounds: Bound, beside: str | None = None
) -> Row:
    """Make a row. `beside`: the case whose value of the same name is the reference."""
    reference = None if beside is None else (beside, value)
    return Row(name=name, unit=unit, case=case, value=value, reference=reference, bounds=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    cases: Sequence[Case]
    rows: Sequence[Row]
    rounds_max: int = 99
    """Limits the rounds where one takes long and varies little."""
    notes: Sequence[str] = ()
    """What is not measured, and why."""


def pick(families: Sequence[Family], wanted: Sequence[str]) -> list[Family]:
    """Select the families and rows that `wanted` names, with only the cases that these need.

    A name is that of a family, or else part of a row's name. An empty `wanted` selects everything.
    Raises:
        ValueError: a name matches nothing.
    """
    if not wanted:
        return list(families)
    names = {family.name for family in families}

    def is_wanted(family: Family, row: Row, name: str) -> bool:
        return family.name == name if name in names else name.lower() in row.name.lower()

    for name in wanted:
        if not any(is_wanted(family, row, name) for family in families for row in family.rows):
            raise ValueError(f"no figure or family is called {name!r}")
    picked = []
    for family in families:
        rows = [row for row in family.rows if any(is_wanted(family, row, name) for name in wanted)]
        needed = {row.case for row in rows} | {row.reference[0] for row in rows if row.reference}
        cases = [case for case in family.cases if case.name in needed]
        if rows:
            picked.append(replace(family, cases=cases, rows=rows))
    return picked
