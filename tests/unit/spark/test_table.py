"""Columns are aligned whatever is longest in them."""

from __future__ import annotations

from spark.commands.table import lines


def test_names_stand_left_and_figures_right() -> None:
    rows = [("a", "b", "1,000"), ("longer", "", "5")]
    assert list(lines(("name", "of", "n"), rows, names=2)) == [
        "name    of      n",
        "a       b   1,000",
        "longer          5",
    ]


def test_without_rows_there_are_headings() -> None:
    assert list(lines(("topic", "messages"), [])) == ["topic  messages"]
