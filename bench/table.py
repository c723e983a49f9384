"""The figures as people read them: one line each, the worst news not hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .figure import Figure

HEADINGS = ("figure", "measured", "reference", "ratio (least to most)", "mark", "holds")


def render(figures: Sequence[Figure]) -> str:
    """A Markdown table, its columns aligned."""
    rows = [HEADINGS, *(cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        measured(figure),
        number(figure.reference),
        ratio(figure),
        figure.mark,
        {True: "yes", False: "NO", None: ""}[figure.holds],
    )


def measured(figure: Figure) -> str:
    """The value and its unit, or why there is none."""
    if figure.value is not None:
        return f"{number(figure.value)} {figure.unit}"
    return f"LOST OR WRONG {figure.wrong:,}" if figure.wrong else "not measured"


def ratio(figure: Figure) -> str:
    if figure.ratio is None:
        return ""
    ratios = [run["ratio"] for run in figure.runs if run["ratio"] is not None]
    return f"{figure.ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def number(value: float | None) -> str:
    """Three or four digits that mean something, none that do not."""
    if value is None:
        return ""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.3g}"
