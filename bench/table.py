"""The figures as a table of one row each, which shows losses and failed rounds in place of values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .figure import Figure

HEADINGS = (
    "figure", "measured (least to most)", "reference", "ratio (least to most)", "mark", "holds",
)  # fmt: skip


def render(figures: Sequence[Figure]) -> str:
    """Return a Markdown table with aligned columns."""
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
    """Return the value with its unit, or why there is none, followed by caveats."""
    if figure.value is not None:
        told = (
            f"{number(figure.value)} {figure.unit}{spread([run['value'] for run in figure.runs])}"
        )
    elif figure.wrong:
        told = f"LOST OR WRONG {figure.wrong:,}"
    else:
        told = "too few samples" if figure.runs else "not measured"
    caveats = [run["caveat"] for run in figure.runs if run.get("caveat")]
    if figure.failed:
        caveats.append(f"FAILED rounds {figure.failed}")
    return ", ".join([told, *dict.fromkeys(caveats)])


def ratio(figure: Figure) -> str:
    if figure.ratio is None:
        return ""
    return f"{figure.ratio:.2f}{spread([run['ratio'] for run in figure.runs], '.2f')}"


def spread(values: Sequence[float | None], digits: str = "") -> str:
    """Return the range of the values of several rounds, or "" for fewer than two.

    Args:
        digits: a format specification; by default the values are formatted by `number`.
    """
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return ""
    least, most = (
        format(value, digits) if digits else number(value) for value in (min(present), max(present))
    )
    return f" ({least} to {most})"


def number(value: float | None) -> str:
    """Format with three significant digits, or without decimals from 100 on."""
    if value is None:
        return ""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.3g}"
