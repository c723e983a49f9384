"""Tables of the project's own figures and their marks, from the files of `mesh-bench mesh|durable|spark --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.table import HEADINGS, cells

from .origin import hardware, not_measured

TIERS = ("mesh", "durable", "spark")
"""The order on the page; the results of each are in TIER.json."""
BEGIN = "<!-- Below: the marks, written by mesh-bench page. -->"
END = "<!-- Above: the marks. Below: by hand, and kept. -->"

Marks = Mapping[str, Mapping[str, Any]]


def read(directory: Path) -> Marks:
    """Return the results that exist, by tier."""
    files = {tier: directory / f"{tier}.json" for tier in TIERS}
    return {tier: json.loads(file.read_text()) for tier, file in files.items() if file.exists()}


def replaced(page: str, marks: Marks) -> str:
    """Return the page with these tables in place of its present ones, or at its end; the rest is unchanged."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2].strip()
    parts = [before.rstrip(), "", BEGIN, "", *lines(marks), END, "", after]
    return "\n".join(parts).strip() + "\n"


def lines(marks: Marks) -> Iterator[str]:
    for tier, content in marks.items():
        machine = content["machine"]
        yield f"### {tier.capitalize()}: measured at {content['commit'][:7]}"
        yield ""
        yield (
            f"`{machine['command']}`, {machine['time']}; {hardware(machine)}; "
            f"load {machine['load_average_before'][0]} before; 10 M turns of an empty loop {machine['loop_10m_s']:.2f} s"
            f"{'; files differ from the commit' if machine['dirty'] else ''}."
        )
        yield ""
        yield f"| {' | '.join(HEADINGS)} |"
        yield f"|{'---|' * len(HEADINGS)}"
        for figure in content["figures"]:
            yield f"| {' | '.join(cells(Figure(**figure)))} |"
        yield ""
        yield from not_measured(machine)
        if machine["failures"]:
            yield ""
