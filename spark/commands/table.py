"""Formats rows as aligned columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1
) -> Iterator[str]:
    """Yield the headings, then each row.

    Args:
        names: how many columns, from the left, are aligned left; the others are numbers, aligned right.
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for cells in (headings, *rows):
        left = [
            cell.ljust(width) for cell, width in zip(cells[:names], widths[:names], strict=True)
        ]
        right = [
            cell.rjust(width) for cell, width in zip(cells[names:], widths[names:], strict=True)
        ]
        yield "  ".join([*left, *right])
