"""Draws the plots of the page: distributions, corrected or not, and how costs grow. SVG, without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from matplotlib import colormaps, rc_context, ticker
from matplotlib.figure import Figure

from bench.latency.distribution import BEYOND_MIN

SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "bench"}
"""Text stays text in the SVG, and the same plot gives the same file."""
NINES = 7
WIDTH_IN, HEIGHT_IN = 8.0, 4.5
Curve = tuple[list[float], list[float]]
"""Pairs of 1 / (1 - quantile) and the value in ms, as two lists."""


def read_curve(file: Path) -> tuple[Curve, int]:
    """Return the curve of an `.hgrm` file, and the number of its samples."""
    found, values, count = list[float](), list[float](), 0
    for line in file.read_text().splitlines()[2:]:
        if line.startswith("#"):
            continue
        words = line.split()
        count = int(words[2])
        values.append(float(words[0]))
        found.append(float(words[3]) if len(words) > 3 else float(count))
    return (found, values), count


def distributions(files: Mapping[str, Path], title: str, to: Path) -> None:
    """Draw a curve for each name: solid where at least BEYOND_MIN samples lie beyond, dashed further on."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="tight")
    axes = figure.subplots()
    for place, (name, file) in enumerate(sorted(files.items())):
        (inverse, values), count = read_curve(file)
        deep = sum(1 for one in inverse if one <= count / BEYOND_MIN)
        ours = name.startswith("mesh")
        style: dict[str, Any] = {
            "color": colormaps["tab20"](place % 20), "where": "post", "linewidth": 2.4 if ours else 0.9,
        }  # fmt: skip
        axes.step(inverse[:deep], values[:deep], label=f"{name}, n={count:,}", **style)
        axes.step(inverse[max(deep - 1, 0) :], values[max(deep - 1, 0) :], linestyle="--", **style)
    percentile_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, to)


def percentile_axis(axes: Any) -> None:
    """Set the x axis to 1 / (1 - quantile) on a log scale: every further nine takes the same width."""
    axes.set_xscale("log")
    axes.set_xlim(1, 10 ** (NINES - 1))
    axes.xaxis.set_major_locator(ticker.FixedLocator([10**nines for nines in range(NINES)]))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter([percent(n) for n in range(NINES)]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.grid(alpha=0.3)


def percent(nines: int) -> str:
    return f"{100 - 100 / 10**nines:.{max(nines - 2, 0)}f} %"


def bars(values: Mapping[str, float], words: str, to: Path, *, own: Sequence[str]) -> None:
    """Draw one bar for each system, the best on top; the mesh's own in another colour."""
    figure = Figure(figsize=(WIDTH_IN, 0.6 + 0.24 * len(values)), layout="tight")
    axes = figure.subplots()
    ordered = sorted(values.items(), key=lambda item: -item[1])
    colours = ["C0" if name in own else "0.7" for name, _ in ordered]
    axes.barh([name for name, _ in ordered], [value for _, value in ordered], color=colours)
    axes.set_xlabel(words)
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(alpha=0.3, axis="x")
    save(figure, to)


def growth(axis: Mapping[str, Any], to: Path) -> None:
    """Draw a panel for each value over the steps of an axis."""
    lines = {words: points for words, points in axis["lines"].items() if points}
    panels_count = max(len(lines), 1)
    figure = Figure(figsize=(3.4 * panels_count, 2.8), layout="tight")
    panels = figure.subplots(1, panels_count, squeeze=False)
    for panel, (words, points) in zip(panels[0], lines.items(), strict=False):
        panel.plot([step for step, _ in points], [value for _, value in points], marker="o", ms=3)
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        panel.set_title(words, fontsize=8)
        panel.set_xlabel(axis["unit"], fontsize=8)
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.3)
    save(figure, to)


def save(figure: Figure, to: Path) -> None:
    """Save as SVG for the page, without a date in it, and as PNG beside it."""
    with rc_context(cast("Any", SETTINGS)):
        figure.savefig(to.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(to.with_suffix(".png"), dpi=110)
